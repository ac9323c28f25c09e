"""Figures of a repair, by hand."""

from __future__ import annotations

import math

import torch

from imperfed.data.oracle import Oracle
from imperfed.evaluation.evaluator import Evaluator, mending_figures

TRUTH = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 0, 1])
GIVEN = torch.tensor([0, 1, 2, 3, 0, 1, 0, 0, 1, 0])  # the last four are wrong
SUGGESTED = torch.tensor([3, 1, 2, 3, 0, 1, 2, 3, 2, 0])  # one right one spoilt, two set right, one changed in vain


def test_shares_before_and_after() -> None:
    figures = mending_figures(GIVEN, SUGGESTED, TRUTH)
    expected = {"noise before": 0.4, "noise after": 0.3, "changed": 0.4, "precision": 0.75, "recall": 0.75}
    assert figures == expected | {"damage": 1 / 6}
    evaluator = Evaluator(Oracle(TRUTH, (), ()))
    assert evaluator.mended(0, 10, GIVEN, SUGGESTED) == figures
    part = evaluator.mended(4, 10, GIVEN[4:], SUGGESTED[4:])
    assert part is not None
    assert part["noise after"] == 2 / 6


def test_a_share_of_nothing_is_none() -> None:
    figures = mending_figures(TRUTH, TRUTH, TRUTH)
    assert math.isnan(figures["precision"])
    assert math.isnan(figures["recall"])
    assert figures["damage"] == figures["noise after"] == 0


def test_groups_against_tasks() -> None:
    evaluator = Evaluator(Oracle(TRUTH, (), (), tasks=(0, 0, 1, 1)))
    assert evaluator.rand_index((1, 1, 0, 0)) == 1
    assert evaluator.rand_index((0, 1, 0, 1)) == -0.5
    assert evaluator.rand_index(()) is None
    assert Evaluator(Oracle(None, (), ())).rand_index((0, 1)) is None
    assert Evaluator(Oracle(None, (), ())).mended(0, 10, GIVEN, SUGGESTED) is None
