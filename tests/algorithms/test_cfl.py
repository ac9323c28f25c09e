"""CFL: the split of a cluster in numbers, and clusters through the engine."""

from __future__ import annotations

import pytest
import torch

from imperfed.algorithms.cfl import CFL, complete_linkage, cosines, separation
from imperfed.engine.local_training import Local
from imperfed.testing.toy import Watched, engine
from tests.support.bowls import Bowl, bowls, only

D = torch.tensor([[1.0, 0.1], [0.9, 0.2], [-1.0, 0.1], [-0.8, -0.1]])
ONES = torch.ones(4)


def test_four_updates() -> None:
    assert D.mean(0).norm().item() == pytest.approx(0.079057, abs=1e-6)
    assert D.norm(dim=1).max().item() == pytest.approx(1.004988, abs=1e-6)
    S = cosines(D)
    part = complete_linkage(1 - S)
    assert part.tolist() == [False, False, True, True]
    assert S[:2, 2:].max().item() == pytest.approx(-0.949757, abs=1e-6)
    assert separation(S, part) == pytest.approx(0.987359, abs=1e-6)


@pytest.mark.parametrize(
    ("method", "splits"),
    [
        (CFL(eps1=0.08, eps2=1.0), True),
        (CFL(eps1=0.079, eps2=1.0), False),  # their mean is too long
        (CFL(eps1=0.08, eps2=1.005), False),  # none is long enough
        (CFL(eps1=0.08, eps2=1.0, gamma=0.98), True),
        (CFL(eps1=0.08, eps2=1.0, gamma=0.99), False),
    ],
)
def test_when_a_cluster_is_split(method: CFL, splits: bool) -> None:
    assert (method.split(D, ONES) is not None) == splits
    opposed = torch.tensor([[1.5, 0.01], [-1.5, 0.01], [-1.4, 0.01]])
    assert CFL(eps1=1.0, eps2=1.2).split(opposed, ONES[:3]) is not None
    assert CFL(eps1=1.0, eps2=1.2).split(opposed[:2], ONES[:2]) is None  # two sites are not divided


def test_the_mean_is_weighted_if_asked() -> None:
    assert CFL(eps1=0.5, eps2=1.0).split(D, torch.tensor([9.0, 1, 1, 1])) is None


def test_complete_linkage_goes_by_the_farthest() -> None:
    # 0, 1, 2.1, 3.3: single linkage would leave 3.3 alone; by the farthest, {0, 1} and {2.1, 3.3} join last.
    points = torch.tensor([0.0, 1.0, 2.1, 3.3])
    assert complete_linkage((points[:, None] - points).abs()).tolist() == [False, False, True, True]


def leap(ends: list[list[float]], method: CFL, rounds: int) -> Watched:
    """Site k moves half way from wherever it starts to ends[k] in every round."""
    data = bowls(*([[1.0, *end]] for end in ends))
    return engine(
        method, Bowl(), data, Local(steps=1, batch=8, lr=0.5, momentum=0.0), only(0.0, 0.0), rounds=rounds
    ).go()


def test_opposed_sites_get_models_of_their_own() -> None:
    ends = [[4.0, 0.4], [3.6, 0.8], [-4.0, 0.4], [-3.2, -0.4]]
    e = leap(ends, CFL(eps1=0.5, eps2=1.0, warmup=1), 2)
    # Round 0: all move to (0.05, 0.15). In round 1 the mean update is short and the longest is long.
    assert e.state.server["picks"].argmax(1).tolist() == [0, 0, 1, 1]
    start = torch.tensor(ends).mean(0) / 2
    moved = (torch.tensor(ends) - start) / 2
    torch.testing.assert_close(e.state.server["w"], start + moved[:2].mean(0))
    torch.testing.assert_close(e.state.server["others"][0], start + moved[2:].mean(0))
    assert e.model(3)["head.weight"].flatten().tolist() == pytest.approx(e.state.server["others"][0].tolist())
    assert any("cfl splits cluster 0: 2 of 4" in note for note in e.reports[1].notes)


def test_no_split_before_its_time_and_none_beyond_the_most() -> None:
    ends = [[4.0, 0.4], [3.6, 0.8], [-4.0, 0.4], [-3.2, -0.4]]
    assert leap(ends, CFL(eps1=0.5, eps2=1.0, warmup=2), 2).state.server["picks"].argmax(1).tolist() == [0, 0, 0, 0]
    assert leap(ends, CFL(eps1=0.5, eps2=1.0, warmup=0, clusters=1), 2).state.server["w"].shape == (2,)


def test_a_second_split_is_by_site() -> None:
    """The sites of a later cluster are not the first ones: its parts must be found by their own numbers."""
    ends = [[8.0, 0.0], [8.0, 0.1], [8.0, -0.1], [-8.0, 6.0], [-8.0, 6.1], [-8.0, -6.0], [-8.0, -6.1]]
    e = leap(ends, CFL(eps1=2.5, eps2=2.9, warmup=0, clusters=3), 6)
    assert e.state.server["picks"].argmax(1).tolist() == [0, 0, 0, 1, 1, 2, 2]
