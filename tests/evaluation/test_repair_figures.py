"""Figures of a repair, by hand."""

from __future__ import annotations

import pytest
import torch

from imperfed.data.oracle import Oracle
from imperfed.evaluation.evaluator import Evaluator
from imperfed.evaluation.label_figures import RepairFigures, SuspectFigures

TRUTH = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 0, 1])
GIVEN = torch.tensor([0, 1, 2, 3, 0, 1, 0, 0, 1, 0])  # the last four are wrong
SUGGESTED = torch.tensor([3, 1, 2, 3, 0, 1, 2, 3, 2, 0])  # one right one spoilt, two set right, one changed in vain


def test_shares_before_and_after() -> None:
    figures = RepairFigures.of(GIVEN, SUGGESTED, TRUTH)
    assert figures == RepairFigures(
        noise_before=0.4, noise_after=0.3, changed=0.4, precision=0.75, recall=0.75, damage=1 / 6
    )
    evaluator = Evaluator(Oracle(TRUTH, (), ()))
    assert evaluator.repaired(0, 10, GIVEN, SUGGESTED) == figures
    part = evaluator.repaired(4, 10, GIVEN[4:], SUGGESTED[4:])
    assert part is not None
    assert part.noise_after == 2 / 6


def test_a_share_of_nothing_is_none() -> None:
    figures = RepairFigures.of(TRUTH, TRUTH, TRUTH)
    assert figures.precision is None
    assert figures.recall is None
    assert figures.damage == figures.noise_after == 0


def test_suspects_and_the_ranking_by_suspicion() -> None:
    """Wrong are rows 0, 3 and 4; by suspicion they rank first, third and fifth."""
    suspicion = torch.tensor([0.9, 0.8, 0.3, 0.7, 0.1])
    wrong = torch.tensor([True, False, False, True, True])
    figures = SuspectFigures.of(suspicion, suspicion > 0.5, wrong)
    assert figures == SuspectFigures(
        wrong=0.6, precision=2 / 3, recall=2 / 3, average_precision=pytest.approx((1 + 2 / 3 + 3 / 5) / 3), n=5
    )
    none = SuspectFigures.of(suspicion, suspicion > 1, wrong & False)
    assert (none.wrong, none.precision, none.recall, none.average_precision) == (0, None, None, None)


def test_groups_against_tasks() -> None:
    evaluator = Evaluator(Oracle(TRUTH, (), (), tasks=(0, 0, 1, 1)))
    assert evaluator.rand_index((1, 1, 0, 0)) == 1
    assert evaluator.rand_index((0, 1, 0, 1)) == -0.5
    assert evaluator.rand_index(()) is None
    assert Evaluator(Oracle(None, (), ())).rand_index((0, 1)) is None
    assert Evaluator(Oracle(None, (), ())).repaired(0, 10, GIVEN, SUGGESTED) is None
