"""One site a label: who holds what, what belongs to nobody, and what cannot be cut so."""

from dataclasses import replace

import pytest
import torch

from imperfed.core.errors import DataError, UsageError
from imperfed.core.labels import Positive
from imperfed.data.dataset import Dataset
from imperfed.data.federate import FederatedData, federate
from imperfed.data.held_out import share_at_sites
from imperfed.data.labelling import LabelConfig
from imperfed.data.partitions.dirichlet import DirichletPartition
from imperfed.data.partitions.iid import IIDPartition
from imperfed.data.partitions.label import LabelPartition
from imperfed.data.split import SplitConfig

LABEL = SplitConfig(partition=LabelPartition(), test=0.25, validation=0.125, public=0.0)
NAMES = ("aorta", "bone", "cyst", "duct", "ear")


def dataset(n: int = 40) -> Dataset:
    """Rows that are all different; label 4 is nobody's, and some rows have no label."""
    draw = torch.Generator().manual_seed(0)
    y = (torch.rand(n, 5, generator=draw) < 0.35).to(torch.int8)
    y[:, 4] = 0
    x = torch.arange(n * 6, dtype=torch.float32).view(n, 2, 3)
    return Dataset("d", x, y, None, NAMES, ids=tuple(f"row {i}" for i in range(n)))


def cut(split: SplitConfig = LABEL, seed: int = 0, data: Dataset | None = None) -> FederatedData:
    return federate(data or dataset(), split, LabelConfig(), seed)


def test_a_site_holds_every_training_example_of_its_label():
    data, scene = dataset(), cut()
    fed = scene.federation
    assert fed.sites == NAMES[:4]
    assert isinstance(fed.labels, Positive)
    assert fed.at is not None
    tested = {tuple(x.flatten().tolist()) for x in (*scene.oracle.common_x, *scene.oracle.validation_x)}
    for k, name in enumerate(fed.sites):
        a, b = fed.starts[k], fed.starts[k + 1]
        label = NAMES.index(name)
        assert set(fed.labels.values[a:b].tolist()) == {label}
        held = {tuple(x.flatten().tolist()) for x in fed.inputs(a, b)}
        carry = {tuple(x.flatten().tolist()) for x, y in zip(data.x, data.y, strict=True) if y[label]}
        assert held == carry - tested
        for at, row in zip(fed.at[a:b], fed.ids[a:b], strict=True):
            assert torch.equal(fed.x[at], data.x[int(row.split()[1])])


def test_test_and_validation_rows_are_nobodys_and_carry_labels():
    data, scene = dataset(), cut()
    labelled = int(data.y.any(1).sum())
    facts = scene.facts
    assert facts["common_test_rows"] == len(scene.oracle.common_y) == round(0.25 * labelled)
    assert facts["validation_rows"] == len(scene.oracle.validation_y) == round(0.125 * labelled)
    assert facts["examples"] + facts["common_test_rows"] + facts["validation_rows"] == labelled
    assert facts["rows_left_out"] == 40 - labelled > 0
    assert facts["classes_at_nobody"] == ["ear"]
    assert scene.oracle.common_y.any(1).all()
    assert scene.oracle.test_x == ()
    parts = [{tuple(x.flatten().tolist()) for x in t} for t in (scene.oracle.common_x, scene.oracle.validation_x)]
    assert not parts[0] & parts[1]


def test_saying_the_most_frequent_labels_every_time():
    data = cut()
    sizes = data.federation.sizes()
    order = sorted(range(4), key=lambda k: -sizes[k])
    y = data.oracle.common_y.double()
    assert data.facts["most_frequent"]["p@1"] == pytest.approx(float(y[:, order[0]].mean()))
    assert data.facts["most_frequent"]["p@3"] == pytest.approx(float(y[:, order[:3]].mean()))


def test_what_is_not_annotated_is_no_label():
    data = dataset()
    assert data.y is not None
    some = replace(data, y=torch.where(data.y == 0, -1, data.y).to(torch.int8))
    full, partial = cut(data=data), cut(data=some)
    assert partial.federation.ids == full.federation.ids
    assert torch.equal(partial.federation.labels.values, full.federation.labels.values)
    assert partial.facts == full.facts


def test_the_seed_decides():
    assert cut(seed=1).federation.ids == cut(seed=1).federation.ids != cut(seed=2).federation.ids


def test_an_official_test_set_takes_the_place_of_a_drawn_one():
    data = dataset()
    official = replace(data, test_x=data.x[:7] + 1000, test_y=data.y[:7])
    scene = cut(data=official)
    assert torch.equal(scene.oracle.common_x, official.test_x)
    assert scene.facts["common_test_rows"] == 7


def test_tables_are_standardised_and_sparse_rows_are_not():
    data = dataset()
    table = replace(data, x=data.x.flatten(1))
    assert cut(data=table).federation.x.mean(0).abs().max() < 1e-5
    sparse = cut().federation
    assert torch.equal(sparse.x[sparse.at[0]], data.x[int(sparse.ids[0].split()[1])])


@pytest.mark.parametrize(
    ("split", "complaint"),
    [
        ({"test": 0.8, "validation": 0.2}, "leave something to train on"),
        ({"validation": -0.1}, "leave something to train on"),
        ({"trusted": 0.1}, "leaves no rows for the server"),
    ],
)
def test_bad_settings(split: dict[str, float], complaint: str):
    with pytest.raises(UsageError, match=complaint):
        cut(replace(LABEL, **split))


def test_other_partitions_leave_holding_out_to_the_sites():
    assert share_at_sites(LABEL) == 0.0
    assert share_at_sites(SplitConfig(partition=IIDPartition(), validation=0.1)) == 0.1


def test_data_of_one_class_a_row_cannot_be_cut_so():
    one = Dataset("d", torch.rand(9, 2), torch.arange(9) % 3, None, ("a", "b", "c"))
    with pytest.raises(DataError, match="several classes per example"):
        cut(data=one)
    with pytest.raises(DataError, match="one true class per row"):
        cut(SplitConfig(partition=DirichletPartition()))


def test_a_class_that_no_site_could_be_called_by_is_refused():
    """Files of a site are named after it: `../bone` would be written outside of the run's folder."""
    for name, problem in (("../bone", "cannot be the name of a file"), ("global", "the name of another file of a run")):
        with pytest.raises(DataError, match=f"d: with partition = label sites are called like classes.*{problem}"):
            cut(data=replace(dataset(), classes=("aorta", name, *NAMES[2:])))
