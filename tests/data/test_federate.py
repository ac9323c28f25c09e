from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from imperfed.core.errors import DataError, UsageError
from imperfed.core.labels import Candidates, Exact
from imperfed.data.corruption.candidates.flip import FlippedSets
from imperfed.data.corruption.candidates.given_sets import GivenSets
from imperfed.data.corruption.candidates.instance import InstanceSets
from imperfed.data.corruption.candidates.uniform_sets import UniformSets
from imperfed.data.dataset import Dataset
from imperfed.data.federate import federate
from imperfed.data.labelling import LabelConfig
from imperfed.data.partitions import partitions
from imperfed.data.partitions.classes import ClassesPartition
from imperfed.data.partitions.column import ColumnPartition
from imperfed.data.partitions.dirichlet import DirichletPartition
from imperfed.data.partitions.iid import IIDPartition
from imperfed.data.row_split import site_names
from imperfed.data.scale import Scale
from imperfed.data.split import SplitConfig

FLIP = LabelConfig(candidates=FlippedSets())
EXACT = LabelConfig(kind="exact")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def table(n=400, classes=4, test=0):
    """Column 0 is the row's number, so that every row can be recognised; column 3 is constant."""
    draw = np.random.default_rng(5)
    y = torch.from_numpy(draw.integers(0, classes, n))
    x = torch.from_numpy(draw.normal(size=(n, 4)) * [1, 1, 20, 1] + [0, 5, -3, 0]).float()
    x[:, 0], x[:, 3] = torch.arange(n), 1e6 / 3
    x[:, 1] += y
    return Dataset(
        "table",
        x,
        y,
        None,
        tuple("abcdef"[:classes]),
        test_x=x[:test] + 0.5 if test else None,
        test_y=y[:test] if test else None,
        column=torch.arange(n) % 3,
        ids=tuple(f"row-{i}" for i in range(n)),
    )


def images(n=120, test=50):
    draw = torch.Generator().manual_seed(1)
    x, y = torch.rand(n + test, 1, 4, 4, generator=draw), torch.arange(n + test) % 3
    return Dataset("images", x[:n], y[:n], None, ("a", "b", "c"), test_x=x[n:], test_y=y[n:])


def rows_of(data):
    return [int(name.removeprefix("row-")) for name in data.federation.ids]


def row_numbers(dataset, data, x):
    """Which rows of `table` these standardised inputs are."""
    column = dataset.x[rows_of(data), 0].double()
    return sorted((x[:, 0].double() * column.std(correction=0) + column.mean()).round().long().tolist())


@settings(deadline=None, max_examples=40)
@given(
    name=st.sampled_from(["iid", "dirichlet", "quantity", "classes", "column"]),
    test=st.floats(0.01, 0.9),
    public=st.floats(0, 0.9),
    seed=st.integers(0, 2**32),
)
def test_rows_go_to_training_test_or_public_and_never_to_two_of_them(name, test, public, seed):
    data = table()
    settings = {"sizes": (1, 2, 3)} if name == "quantity" else {}
    split = SplitConfig(3, partitions()[name](**settings), test=test, public=public)
    scene = federate(data, split, FLIP, seed)
    train = rows_of(scene)
    tests = [row for x in scene.oracle.test_x for row in row_numbers(data, scene, x)]
    public_rows = row_numbers(data, scene, scene.federation.public)
    everything = train + tests + public_rows
    assert len(everything) == len(set(everything)) == 400 - scene.facts["rows_left_out"]
    assert name == "classes" or scene.facts["rows_left_out"] == 0
    assert min(scene.facts["rows"]) >= 1
    assert min(scene.facts["test_rows"]) >= 1


def test_shares_of_test_and_public_rows():
    data = federate(table(), SplitConfig(sites=4, partition=IIDPartition()), FLIP, 0)
    assert data.facts["rows"] == [80] * 4
    assert data.facts["test_rows"] == [16] * 4
    assert data.facts["public_rows"] == 16
    assert data.facts["public_from"] == "the test rows of the sites"
    assert data.oracle.common_x is None
    assert data.facts["common_test_rows"] == 0


def test_rows_labels_truth_and_names_stay_together():
    data = table()
    scene = federate(data, SplitConfig(), EXACT, 1)
    rows = rows_of(scene)
    assert torch.equal(scene.oracle.truth, data.y[rows])
    assert torch.equal(scene.federation.labels.values, data.y[rows])
    assert row_numbers(data, scene, scene.federation.x) == sorted(rows)
    for x, y in zip(scene.oracle.test_x, scene.oracle.test_y, strict=True):
        own = (x[:, 0].double() * data.x[rows, 0].double().std(correction=0) + data.x[rows, 0].double().mean()).round()
        assert torch.equal(y, data.y[own.long()])


def test_sites_follow_each_other_and_keep_to_their_column():
    data = table()
    scene = federate(data, SplitConfig(partition=ColumnPartition()), FLIP, 1)
    starts = scene.federation.starts
    assert scene.federation.sites == ("site-0", "site-1", "site-2")
    for k, (start, stop) in enumerate(pairwise(starts)):
        rows = rows_of(scene)[start:stop]
        assert set(data.column[rows].tolist()) == {k}
        assert rows == sorted(rows)
        assert set(data.column[row_numbers(data, scene, scene.oracle.test_x[k])].tolist()) == {k}


def test_tables_are_standardised_by_the_pooled_training_rows():
    data = table()
    scene = federate(data, SplitConfig(partition=DirichletPartition(beta=0.2)), FLIP, 2)
    x = data.x[rows_of(scene)].double()
    mean, spread = x.mean(0), x.std(0, correction=0)
    spread[3] = 1.0
    assert torch.allclose(scene.federation.x.double(), (x - mean) / spread, atol=1e-5)
    assert scene.federation.x.dtype == torch.float32
    assert scene.federation.x[:, 3].abs().max() < 1e-3
    moved = federate(replace(data, x=data.x * 3 + 2), SplitConfig(partition=DirichletPartition(beta=0.2)), FLIP, 2)
    assert torch.allclose(moved.oracle.test_x[0][:, :3], scene.oracle.test_x[0][:, :3], atol=1e-4)
    assert torch.allclose(moved.federation.public[:, :3], scene.federation.public[:, :3], atol=1e-4)


def test_a_column_that_varies_little_around_a_large_value_is_not_constant():
    x = 1000 + torch.randn(500, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).float() * 0.1
    scaled = Scale.of(x, [torch.arange(100), torch.arange(100, len(x))])(x)
    assert float(scaled.std(correction=0)) == pytest.approx(1.0, abs=1e-3)


def test_a_constant_column_is_only_moved_to_zero():
    """Its sums of squares leave a variance of rounding errors, which must not become a spread."""
    x = torch.tensor([0.1, 1234.567, 1e6 / 3, -7e-5, 0.0]).repeat(997, 1)
    scale = Scale.of(x, [torch.arange(300), torch.arange(300, len(x))])
    assert scale(x).abs().max() < 1e-4
    assert torch.allclose(scale(x + 1) - scale(x), torch.ones_like(x), atol=0.05)


def test_images_are_left_as_they_are_and_the_official_test_set_is_shared_out():
    data = images()
    scene = federate(data, SplitConfig(sites=2, partition=IIDPartition()), FLIP, 3)
    rows = [int(i) for i in scene.federation.ids]
    assert torch.equal(scene.federation.x, data.x[rows])
    assert scene.facts["public_rows"] == 10
    assert scene.facts["public_from"] == "the official test set"
    assert scene.facts["common_test_rows"] == 40
    assert scene.facts["test_rows"] == [12, 12]
    assert scene.facts["rows_left_out"] == 0
    pixels = {float(v) for v in data.test_x[:, 0, 0, 0]}
    public = {float(v) for v in scene.federation.public[:, 0, 0, 0]}
    common = {float(v) for v in scene.oracle.common_x[:, 0, 0, 0]}
    assert public | common == pixels
    assert not public & common
    where = {float(v): int(c) for v, c in zip(data.test_x[:, 0, 0, 0], data.test_y, strict=True)}
    assert [where[float(v)] for v in scene.oracle.common_x[:, 0, 0, 0]] == scene.oracle.common_y.tolist()


def test_the_official_test_set_of_a_table_is_standardised_alike():
    data = table(test=30)
    scene = federate(data, SplitConfig(public=0.0), FLIP, 3)
    x = data.x[rows_of(scene)].double()
    expected = (data.test_x.double() - x.mean(0)) / x.std(0, correction=0)
    assert torch.allclose(
        scene.oracle.common_x.double()[:, :3].sort(0).values, expected[:, :3].sort(0).values, atol=1e-5
    )
    assert scene.facts["public_from"] == "nowhere"
    assert scene.federation.public.shape == (0, 4)


def test_the_same_seed_gives_the_same_scene_and_another_does_not():
    a, b, c = (federate(table(), SplitConfig(), FLIP, seed) for seed in (4, 4, 5))
    assert a.federation.ids == b.federation.ids != c.federation.ids
    assert torch.equal(a.federation.labels.values, b.federation.labels.values)
    assert torch.equal(a.federation.public, b.federation.public)
    assert a.facts == b.facts


@pytest.mark.parametrize(
    "other", [EXACT, LabelConfig(candidates=UniformSets()), LabelConfig(candidates=InstanceSets())]
)
def test_other_labels_leave_the_split_as_it_was(other):
    a, b = (federate(table(), SplitConfig(), labelling, 6) for labelling in (FLIP, other))
    assert a.federation.ids == b.federation.ids
    assert torch.equal(a.federation.public, b.federation.public)
    assert all(torch.equal(x, y) for x, y in zip(a.oracle.test_x, b.oracle.test_x, strict=True))


def test_another_split_leaves_every_rows_set_as_it_was():
    a, b = (
        federate(table(), split, FLIP, 6)
        for split in (SplitConfig(), SplitConfig(sites=7, partition=IIDPartition(), test=0.3))
    )
    first = dict(zip(a.federation.ids, a.federation.labels.values.tolist(), strict=True))
    second = dict(zip(b.federation.ids, b.federation.labels.values.tolist(), strict=True))
    both = first.keys() & second.keys()
    assert len(both) > 150
    assert all(first[name] == second[name] for name in both)


def test_facts_are_json_and_count_what_is_there():
    data = table(classes=6)
    scene = federate(data, SplitConfig(2, ClassesPartition(per_site=2)), LabelConfig(candidates=InstanceSets()), 0)
    facts = json.loads(json.dumps(scene.facts))
    assert facts["labels"] == "candidates"
    assert facts["sets"] == "instance"
    assert facts["temperature"] == 1.0
    sizes = scene.federation.labels.values.sum(1)
    assert facts["mean_size"] == pytest.approx(float(sizes.float().mean()))
    assert (facts["min_size"], facts["max_size"]) == (int(sizes.min()), int(sizes.max()))
    assert facts["singletons"] == pytest.approx(float((sizes == 1).float().mean()))
    counts = np.array(facts["counts"])
    assert counts.shape == (6, 2)
    assert counts.sum(0).tolist() == facts["rows"]
    first = scene.oracle.truth[: facts["rows"][0]]
    assert counts[:, 0].tolist() == np.bincount(first, minlength=6).tolist()
    assert facts["classes_at_nobody"] == [name for name, row in zip("abcdef", counts, strict=True) if not row.sum()]
    assert len(facts["classes_at_nobody"]) == 2


def test_the_calibrated_temperature_is_a_fact():
    data = federate(table(2000), SplitConfig(), LabelConfig(candidates=InstanceSets(rho=0.5, mean_size=2.6)), 0)
    assert data.facts["temperature"] != 1.0
    assert data.facts["mean_size"] == pytest.approx(2.6, abs=0.1)


def real_sets(**changes):
    data = table()
    sets = torch.nn.functional.one_hot(data.y, 4).bool()
    sets[:, 0] = True
    return replace(data, candidates=sets, **changes)


def test_auto_takes_the_sets_of_the_data_and_candidates_what_was_named():
    data = real_sets()
    given_ = federate(data, SplitConfig(), FLIP, 0)
    assert given_.facts["sets"] == "given"
    assert torch.equal(given_.federation.labels.values, data.candidates[rows_of(given_)])
    made = federate(data, SplitConfig(), replace(FLIP, kind="candidates"), 0)
    assert made.facts["sets"] == "flip"
    assert not torch.equal(made.federation.labels.values, given_.federation.labels.values)
    assert isinstance(made.federation.labels, Candidates)
    named = federate(data, SplitConfig(), LabelConfig(kind="candidates", candidates=GivenSets()), 0)
    assert torch.equal(named.federation.labels.values, given_.federation.labels.values)


def test_exact_labels_are_a_type_of_their_own():
    data = federate(table(), SplitConfig(), EXACT, 0)
    assert isinstance(data.federation.labels, Exact)
    assert data.facts["labels"] == "exact"
    assert "mean_size" not in data.facts


def test_data_without_truth_can_be_trained_on_but_not_measured():
    data = real_sets(y=None)
    with pytest.raises(DataError, match="set test = 0"):
        federate(data, SplitConfig(partition=IIDPartition()), FLIP, 0)
    with pytest.raises(DataError, match="use iid, quantity or column"):
        federate(data, SplitConfig(test=0.0), FLIP, 0)
    scene = federate(data, SplitConfig(partition=IIDPartition(), test=0.0), FLIP, 0)
    assert scene.oracle.truth is None
    assert scene.facts["rows"] == [100] * 4
    assert scene.facts["test_rows"] == [0] * 4
    assert scene.facts["public_rows"] == 0
    assert scene.oracle.test_x[0].shape == (0, 4)
    assert "counts" not in scene.facts


@pytest.mark.parametrize(
    ("data", "split", "labelling", "error", "message"),
    [
        (real_sets(y=None), SplitConfig(partition=IIDPartition(), test=0.0), EXACT, DataError, "candidate sets only"),
        (
            real_sets(y=None),
            SplitConfig(partition=IIDPartition(), test=0.0),
            replace(FLIP, kind="candidates"),
            DataError,
            "candidates = given",
        ),
        (table(), SplitConfig(), LabelConfig(candidates=GivenSets()), DataError, "name a generator"),
        (table(), SplitConfig(), LabelConfig(kind="exakt"), UsageError, "Did you mean 'exact'"),
        (table(), SplitConfig(test=1.0), FLIP, UsageError, "test is a share"),
        (table(), SplitConfig(public=-0.1), FLIP, UsageError, "public is a share"),
        (table(30), SplitConfig(sites=30, partition=IIDPartition()), FLIP, DataError, "site-00: one row cannot serve"),
    ],
)
def test_what_cannot_be_done_is_said(data, split, labelling, error, message):
    with pytest.raises(error, match=message):
        federate(data, split, labelling, 0)


def test_a_negative_seed_is_refused():
    with pytest.raises(UsageError, match="data_seed"):
        federate(table(), SplitConfig(), FLIP, -1)


def test_a_bad_row_is_found_before_anything_is_made_of_it():
    data = table()
    data.x[17, 2] = float("nan")
    with pytest.raises(DataError, match="row 17, feature 2"):
        federate(data, SplitConfig(), LabelConfig(), 0)


def test_site_names_sort_as_they_count():
    assert site_names(10)[-1] == "site-9"
    assert site_names(11)[:2] == ("site-00", "site-01")
    assert list(site_names(101)) == sorted(site_names(101))


def test_two_rows_are_enough_for_a_site_and_the_public_takes_none_of_them():
    data = federate(table(8, classes=2), SplitConfig(sites=4, partition=IIDPartition(), public=0.9), FLIP, 0)
    assert data.facts["rows"] == data.facts["test_rows"] == [1] * 4
    assert data.facts["public_rows"] == 0


def test_images_are_standardised_channel_by_channel_where_asked_for():
    size = torch.tensor([1.0, 3.0, 0.0]).view(3, 1, 1)
    x = torch.rand(40, 3, 4, 5, generator=torch.Generator().manual_seed(0)) * size
    y = torch.arange(40) % 2
    data = Dataset("colours", x, y, None, ("a", "b"), test_x=x[:20] + 1, test_y=y[:20])
    scene = federate(
        data,
        SplitConfig(sites=2, partition=IIDPartition(), trusted=0.2, standardise=True),
        LabelConfig(kind="exact"),
        3,
    )
    held = x[[int(i) for i in scene.federation.ids]].double()
    mean, spread = held.mean((0, 2, 3)).view(3, 1, 1), held.std((0, 2, 3), correction=0).view(3, 1, 1)
    spread[2] = 1.0  # a channel without any variation is only moved
    assert torch.allclose(scene.federation.x.double(), (held - mean) / spread, atol=1e-5)
    assert scene.scale.mean.shape == (3, 1, 1)
    common = torch.cat([scene.oracle.common_x, scene.federation.public]).double()
    assert torch.allclose(common.sum(0), (((x[:20] + 1).double() - mean) / spread).sum(0), atol=1e-3)
    assert scene.federation.trusted is not None
    assert float(scene.federation.trusted.x[:, :2].mean()) == pytest.approx(0.0, abs=0.2)
