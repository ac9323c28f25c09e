"""Rows that sites hold out: which, how many, the same at a real site, and never a row that is trained on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from imperfed.core.errors import DataError, UsageError
from imperfed.core.federation import Federation, HeldOut
from imperfed.core.labels import Annotated, Candidates, Exact
from imperfed.data.dataset import Dataset
from imperfed.data.federate import FederatedData, federate
from imperfed.data.held_out import draw, hold_out
from imperfed.data.labelling import LabelConfig
from imperfed.data.oracle import Oracle
from imperfed.data.partitions.iid import IIDPartition
from imperfed.data.scale import Scale
from imperfed.data.split import SplitConfig
from imperfed.data.whole_federation import taken_apart
from imperfed.testing.toy import world


def toy(**more: object) -> FederatedData:
    federation, oracle = world(Candidates)
    return FederatedData(replace(federation, **more), oracle, {"rows": federation.sizes()}, Scale.none())


def test_a_share_of_each_sites_rows_is_held_out_with_the_labels_as_given() -> None:
    whole = toy()
    data = hold_out(whole, 0.25, data_seed=0)
    fed, held = data.federation, data.federation.validation
    assert held is not None
    assert held.sizes() == [3, 5, 8, 6]  # of 12, 20, 31 and 26
    assert fed.sizes() == data.facts["rows"] == [9, 15, 23, 20]
    assert data.facts["held_out_rows"] == held.sizes()
    rows = {
        tuple(x.tolist()): labels.tolist()
        for x, labels in zip(whole.federation.x, whole.federation.labels.values, strict=True)
    }
    for k, (a, b) in enumerate(zip(fed.starts, fed.starts[1:], strict=False)):
        x, labels = held.at(k)
        both = torch.cat([fed.x[a:b], x]).tolist()
        own = whole.federation.inputs(*whole.federation.starts[k : k + 2]).tolist()
        assert sorted(both) == sorted(own)
        assert [rows[tuple(row)] for row in x.tolist()] == labels.values.tolist()
    truth = dict(zip(whole.federation.ids, whole.oracle.truth.tolist(), strict=True))
    assert data.oracle.truth.tolist() == [truth[name] for name in fed.ids]


def test_no_share_is_no_change() -> None:
    whole = toy()
    assert hold_out(whole, 0.0, data_seed=0) is whole


def test_the_draw_depends_on_the_seed_and_the_site_alone() -> None:
    first = draw("north", 40, None, 0.25, 0)
    assert torch.equal(first, draw("north", 40, None, 0.25, 0))
    assert int(first.sum()) == 10
    assert not torch.equal(first, draw("south", 40, None, 0.25, 0))
    assert not torch.equal(first, draw("north", 40, None, 0.25, 1))


@pytest.mark.parametrize(("rows", "held"), [(1, 0), (2, 1), (3, 2), (0, 0)])
def test_a_tiny_site_keeps_a_row_to_train_on(rows: int, held: int) -> None:
    assert int(draw("north", rows, None, 0.9, 0).sum()) == held


def test_a_real_site_holds_out_the_rows_of_the_simulation() -> None:
    whole = toy(together=torch.arange(89) // 2)
    together = hold_out(whole, 0.25, data_seed=3).federation
    assert together.validation is not None
    for k, files in enumerate(taken_apart(whole)[1]):
        alone = hold_out(files.data(Scale.none()), 0.25, data_seed=3).federation
        assert alone.validation is not None
        assert alone.ids == together.ids[together.starts[k] : together.starts[k + 1]]
        assert torch.equal(alone.validation.x, together.validation.at(k)[0])
        assert torch.equal(alone.validation.labels.values, together.validation.at(k)[1].values)


def test_rows_that_belong_together_stay_together() -> None:
    group = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 4])
    for seed in range(20):
        drawn = draw("north", 12, group, 0.25, seed)
        assert 1 <= int(drawn.sum()) <= 3
        assert all(len(set(drawn[group == g].tolist())) == 1 for g in range(5))


def test_a_dataset_names_the_rows_that_belong_together() -> None:
    x = torch.arange(48.0).view(24, 2)
    data = Dataset("d", x, torch.arange(24) % 2, None, ("a", "b"), group=torch.arange(24) // 3)
    split = SplitConfig(sites=1, partition=IIDPartition(), test=0.0, public=0.0, validation=0.3)
    fed = hold_out(federate(data, split, LabelConfig(kind="exact"), 0), 0.3, 0).federation
    assert fed.together is not None
    assert fed.validation is not None
    assert fed.validation.sizes() == [6]
    assert sorted(fed.together.bincount(minlength=8).tolist()) == [0, 0, 3, 3, 3, 3, 3, 3]


def test_shared_examples_are_held_out_by_row() -> None:
    federation, _ = world(Exact)
    at = torch.arange(89) % 30
    shared = replace(federation, x=federation.x[:30], at=at)
    data = hold_out(FederatedData(shared, Oracle(None, (), ()), {}, Scale.none()), 0.25, 0).federation.check()
    assert data.validation is not None
    assert data.at is not None
    assert torch.equal(data.x, shared.x)
    rows = [int(name) for name in data.ids]
    assert torch.equal(data.at, at[rows])
    held = [row for row in range(89) if row not in rows]
    assert torch.equal(data.validation.x, shared.x[at[held]])


def test_what_a_site_annotates_is_known_from_all_its_rows() -> None:
    federation, oracle = world(Annotated)
    marks = torch.full_like(federation.labels.values, -1)
    drawn = draw("site0", 12, None, 0.25, 0)
    marks[: federation.starts[1], 2][drawn] = 1  # the class is annotated in held-out rows only
    data = FederatedData(replace(federation, labels=Annotated(marks, 4)), oracle, {}, Scale.none())
    annotators = hold_out(data, 0.25, 0).federation.annotators
    assert annotators is not None
    assert annotators.tolist() == [[False, False, True, False]] + [[False] * 4] * 3


def test_rows_cannot_be_held_out_twice_or_be_of_another_kind() -> None:
    data = hold_out(toy(), 0.25, data_seed=0)
    with pytest.raises(UsageError, match=r"split.validation = 0.1: toy holds rows out already; leave it out"):
        hold_out(data, 0.1, data_seed=0)
    federation: Federation = data.federation
    assert federation.check() is federation
    held = federation.validation
    assert held is not None
    for wrong, complaint in (
        (HeldOut(held.x, Exact(torch.zeros(22, dtype=torch.int64), 4), held.starts), "other labels"),
        (replace(held, x=held.x[:, :2]), "other inputs"),
        (replace(held, starts=(0, 22)), "22 rows at 1 sites"),
        (replace(held, x=held.x * torch.nan), "not a finite number"),
    ):
        with pytest.raises(DataError, match=complaint):
            replace(federation, validation=wrong).check()


def test_shares_are_checked() -> None:
    data = Dataset("d", torch.rand(9, 2), torch.arange(9) % 3, None, ("a", "b", "c"))
    with pytest.raises(UsageError, match="validation is a share"):
        federate(data, SplitConfig(partition=IIDPartition(), validation=1.0), LabelConfig(kind="exact"), 0)
