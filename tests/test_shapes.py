"""The interface fits what comes later: a method reproduces figures worked out by hand, through the real engine."""

from __future__ import annotations

import pytest
import torch
from bowls import Bowl, bowls, only
from shapes import Krum
from toy import Watched, engine

from imperfed.core import Algorithm
from imperfed.descend import Local


def leap(algorithm: Algorithm, ends: list[list[float]], start: tuple[float, ...]) -> Watched:
    """One round in which site k moves from wherever it starts to ends[k]: one step of 1 in a bowl around it."""
    scene = bowls(*([[1.0, *end]] for end in ends))
    return engine(algorithm, Bowl(), scene, Local(steps=1, batch=8, lr=1.0), only(*start), rounds=1).go()


SEVEN = [[1.00, 2.00], [1.25, 1.82], [0.93, 2.11], [1.12, 2.27], [0.78, 1.91], [1.03, 1.66], [10.0, -10.0]]


def test_krum_takes_the_answer_amid_the_others() -> None:
    krum = Krum(f=1)
    expected = [0.2557, 0.5748, 0.3277, 0.6136, 0.4730, 0.5280, 884.5479]
    assert krum.scores(torch.tensor(SEVEN)).tolist() == pytest.approx(expected, abs=1e-4)
    assert leap(krum, SEVEN, (0.5, -0.5)).state.server["w"].tolist() == pytest.approx([1.0, 2.0], abs=1e-6)


def test_krum_breaks_ties_by_the_lowest_index() -> None:
    e = leap(Krum(f=1), [[0.0], [1.0], [2.0], [3.0], [4.0]], (7.0,))
    assert e.state.server["w"].tolist() == [1.0]
