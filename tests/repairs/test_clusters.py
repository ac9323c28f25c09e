from __future__ import annotations

from typing import get_args

import pytest
import torch

from imperfed.core.errors import UsageError
from imperfed.repairs.fb_nll.clusters import Linkage, cluster

TWO_GROUPS = torch.tensor([[1, 0.9, 0.1, 0.2], [0.9, 1, 0.2, 0.1], [0.1, 0.2, 1, 0.8], [0.2, 0.1, 0.8, 1]]).double()


@pytest.mark.parametrize("linkage", get_args(Linkage))
def test_like_goes_with_like(linkage: str) -> None:
    assert cluster(TWO_GROUPS, 2, linkage).tolist() == [0, 0, 1, 1]


def test_groups_are_numbered_by_their_first_member() -> None:
    order = torch.tensor([2, 0, 3, 1])
    assert cluster(TWO_GROUPS[order][:, order], 2, "average").tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(("groups", "expected"), [(1, [0, 0, 0, 0]), (3, [0, 0, 1, 2]), (4, [0, 1, 2, 3])])
def test_the_tree_is_cut_at_the_number_of_groups(groups: int, expected: list[int]) -> None:
    assert cluster(TWO_GROUPS, groups, "average").tolist() == expected


def test_sites_all_alike_still_give_as_many_groups() -> None:
    assert len(set(cluster(torch.ones(5, 5).double(), 2, "average").tolist())) == 2


def test_linkages_differ_on_a_chain() -> None:
    # 0 .. 3 in a row and two more beyond a gap that is narrower than the row is long.
    at = torch.tensor([0.0, 1, 2, 3, 5.2, 6.6]).double()
    R = 1 - (at[:, None] - at).abs() / 10
    found = {linkage: tuple(cluster(R, 3, linkage).tolist()) for linkage in get_args(Linkage)}
    assert found["average"] == (0, 0, 1, 1, 2, 2)
    assert cluster(R, 2, "complete").tolist() == [0, 0, 0, 0, 1, 1]


def test_the_similarities_are_not_changed() -> None:
    before = TWO_GROUPS.clone()
    cluster(TWO_GROUPS, 2, "average")
    assert torch.equal(TWO_GROUPS, before)


def test_more_groups_than_sites_are_refused() -> None:
    with pytest.raises(UsageError, match="5 groups"):
        cluster(TWO_GROUPS, 5, "average")
