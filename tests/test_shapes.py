"""The interface fits what comes later: a method reproduces figures worked out by hand, through the real engine."""

from __future__ import annotations

from bowls import Bowl, bowls, only
from shapes import IFCA
from toy import Watched, engine

from imperfed.core import Algorithm
from imperfed.descend import Local


def leap(algorithm: Algorithm, ends: list[list[float]], start: tuple[float, ...]) -> Watched:
    """One round in which site k moves from wherever it starts to ends[k]: one step of 1 in a bowl around it."""
    scene = bowls(*([[1.0, *end]] for end in ends))
    return engine(algorithm, Bowl(), scene, Local(steps=1, batch=8, lr=1.0), only(*start), rounds=1).go()


def test_ifca_picks_trains_and_merges_by_cluster() -> None:
    # Squared distances to the models (1, -2) and (-1, 2): 9 and 5, 5 and 13, and a tie of 25, which goes to the first.
    e = leap(IFCA(), [[1.0, 1.0], [2.0, 0.0], [4.0, 2.0]], (1.0, -2.0))
    assert e.state.server["picks"].argmax(1).tolist() == [1, 0, 0]
    assert e.state.server["w"].tolist() == [3.0, 1.0]
    assert e.state.server["other"].tolist() == [1.0, 1.0]
    assert e.model(0)["head.weight"].tolist() == [[1.0, 1.0]]
    assert e.model(1)["head.weight"].tolist() == [[3.0, 1.0]]
    assert e.reports[0].down == 3 * 2 * 2 * 4  # three sites, two models of two float32 weights


def test_ifca_leaves_a_model_that_nobody_picks() -> None:
    e = leap(IFCA(), [[2.0, 0.0]], (1.0, -2.0))
    assert e.state.server["w"].tolist() == [2.0, 0.0]
    assert e.state.server["other"].tolist() == [-1.0, 2.0]
