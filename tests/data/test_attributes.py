"""Sensitive attributes from file to federation: what the sites see, what only the oracle knows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from imperfed.core.errors import DataError
from imperfed.core.federation import Attribute
from imperfed.data.attributes import blur, true_groups
from imperfed.data.corruption.candidates.flip import FlippedSets
from imperfed.data.dataset import Dataset
from imperfed.data.federate import federate
from imperfed.data.labelling import LabelConfig
from imperfed.data.partitions.iid import IIDPartition
from imperfed.data.scale import Scale
from imperfed.data.sources import load
from imperfed.data.split import SplitConfig
from imperfed.data.whole_federation import taken_apart

GROUP = Attribute("group", ("a", "b", "c"), 1)
FLIP = LabelConfig(candidates=FlippedSets())
SPLIT = SplitConfig(sites=3, partition=IIDPartition())


def toy(n=3000, test=0):
    """One feature, three groups, one feature; the class is the group, so that every row's group can be recognised."""
    draw = torch.Generator().manual_seed(0)
    groups = torch.randint(3, (n,), generator=draw)
    x = torch.cat([5 + torch.randn(n, 1, generator=draw), torch.eye(3)[groups], torch.randn(n, 1, generator=draw)], 1)
    more = {"test_x": x[:test].clone(), "test_y": groups[:test]} if test else {}
    return Dataset("toy", x, groups, None, ("u", "v", "w"), attribute=GROUP, **more)


# -- ambiguous groups --------------------------------------------------------------------------------------------------


def test_every_other_group_joins_with_the_same_chance_and_the_own_always():
    data = toy()
    seen = blur(data, 0.3, np.random.default_rng(1))
    sets = GROUP.of(seen.x)
    assert set(sets.unique().tolist()) == {0.0, 1.0}
    assert (sets.gather(1, data.y[:, None]) == 1).all()
    others = sets.clone().scatter_(1, data.y[:, None], torch.nan)
    assert others.nanmean(0).tolist() == pytest.approx([0.3] * 3, abs=0.03)
    assert float((sets.sum(1) == 1).double().mean()) == pytest.approx(0.49, abs=0.03)  # no edge rule: 0.7 x 0.7
    assert torch.equal(seen.x[:, [0, 4]], data.x[:, [0, 4]])
    assert torch.equal(GROUP.of(data.x).argmax(1), data.y)  # the dataset itself keeps the truth


def test_test_rows_are_as_ambiguous():
    data = toy(test=1000)
    sets = GROUP.of(blur(data, 0.3, np.random.default_rng(1)).test_x)
    assert float(sets.sum(1).mean()) == pytest.approx(1.6, abs=0.06)
    assert (sets.gather(1, data.test_y[:, None]) == 1).all()


def test_sets_that_came_ambiguous_are_left_as_they_are():
    seen = blur(toy(), 0.3, np.random.default_rng(1))
    assert true_groups(seen.x, GROUP) is None
    assert blur(seen, 0.3, np.random.default_rng(2)) is seen


def test_probability_zero_keeps_every_group_known():
    data = toy()
    assert torch.equal(blur(data, 0.0, np.random.default_rng(0)).x, data.x)


# -- in a federation ---------------------------------------------------------------------------------------------------


def test_groups_are_never_standardised_and_features_are():
    data = federate(toy(), SPLIT, FLIP, 0)
    assert data.federation.attribute == GROUP
    for x in (data.federation.x, data.federation.public, *data.oracle.test_x):
        assert set(GROUP.of(x).unique().tolist()) == {0.0, 1.0}
    assert data.federation.x[:, 0].mean().abs() < 1e-5
    assert data.scale.mean[1:4].tolist() == [0, 0, 0]
    assert data.scale.spread[1:4].tolist() == [1, 1, 1]


def test_only_the_oracle_knows_the_true_groups():
    data = federate(toy(), SPLIT, FLIP, 0)
    assert true_groups(data.federation.x, GROUP) is None
    for x, y, groups in zip(data.oracle.test_x, data.oracle.test_y, data.oracle.test_group, strict=True):
        assert torch.equal(groups, y)  # in the toy, a row's class is its group
        assert (GROUP.of(x).gather(1, groups[:, None]) == 1).all()


def test_where_nobody_knows_the_groups_the_oracle_does_not_either():
    data = federate(blur(toy(), 0.3, np.random.default_rng(1)), SPLIT, FLIP, 0)
    assert data.oracle.test_group == ()


def test_groups_draw_from_a_stream_of_their_own():
    a, b = (federate(toy(), SPLIT, replace(FLIP, attribute_flip=q), 0) for q in (0.3, 0.6))
    assert a.federation.ids == b.federation.ids
    assert torch.equal(a.federation.labels.values, b.federation.labels.values)
    assert not torch.equal(a.federation.x, b.federation.x)
    assert b.facts["mean_groups"] == pytest.approx(2.2, abs=0.05)
    again = federate(toy(), SPLIT, FLIP, 0)
    assert torch.equal(a.federation.x, again.federation.x)
    assert a.facts["groups"]["a"] == int(GROUP.of(a.federation.x)[:, 0].sum())


# -- own files ---------------------------------------------------------------------------------------------------------


def own(tmp_path, **arrays):
    x = np.arange(8.0).reshape(4, 2)
    attribute = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]])
    np.savez(tmp_path / "own.npz", **({"x": x, "y": np.array([0, 1, 0, 1]), "attribute": attribute} | arrays))
    return load(str(tmp_path / "own.npz"))


def test_a_file_of_ones_own(tmp_path):
    data = own(tmp_path, attribute_values=np.array(["p", "q", "r"]))
    assert data.attribute == Attribute("attribute", ("p", "q", "r"), 2)
    assert data.x[3].tolist() == [6, 7, 1, 0, 0]
    assert own(tmp_path).attribute.values == ("0", "1", "2")
    tested = own(tmp_path, x_test=np.ones((1, 2)), y_test=np.array([1]), attribute_test=np.array([[1, 1, 0]]))
    assert tested.test_x.tolist() == [[1, 1, 1, 1, 0]]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"attribute_values": np.array(["p", "q"])}, "attribute_values: 2 names, but attribute has 3 columns"),
        ({"attribute": np.eye(3)}, r"attribute: shape \(3, 3\), expected one row for each of the 4 rows"),
        ({"attribute": np.zeros((4, 2))}, r"row 0: the columns of attribute hold \[0.0, 0.0\] \(4 such rows"),
        ({"attribute": np.full((4, 2), 0.5)}, "row 0, column 0: 0.5 is neither 0 nor 1"),
        ({"x_test": np.ones((1, 2)), "y_test": np.array([1])}, "add attribute_test"),
        ({"x": np.ones((4, 2, 2))}, "rows of a table of features"),
    ],
)
def test_what_is_wrong_with_it_is_named(tmp_path, arrays, words):
    with pytest.raises(DataError, match=words):
        own(tmp_path, **arrays)


def test_the_groups_of_a_common_test_set_are_blurred_as_all_and_known_to_the_oracle():
    data = federate(toy(test=60), replace(SPLIT, common_test=True), FLIP, 0)
    assert data.oracle.one_test
    assert true_groups(torch.cat([data.federation.public, *data.oracle.test_x]), GROUP) is None
    for x, y, groups in zip(data.oracle.test_x, data.oracle.test_y, data.oracle.test_group, strict=True):
        assert torch.equal(groups, y)  # in the toy, a row's class is its group
        assert (GROUP.of(x).gather(1, groups[:, None]) == 1).all()
    central, holdings = taken_apart(data)  # and so it is where the sites are elsewhere
    assert central.data([one.info() for one in holdings], Scale.none()).oracle.one_test
