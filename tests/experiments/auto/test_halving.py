"""Successive halving on made-up tables, and the plan that fits a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
import torch

from imperfed.experiments.auto import work
from imperfed.experiments.auto.halving import halve, kept
from imperfed.experiments.auto.work import estimate, plan, preferences, products
from imperfed.models import ModelSpec, build


class Table:
    """Scores by trial and rung; remembers which trials went how far."""

    def __init__(self, scores: dict[int, dict[int, float]]) -> None:
        self.scores = scores
        self.asked: list[tuple[list[int], int, bool]] = []

    def advance(self, alive: Sequence[int], rounds: int, last: bool) -> Mapping[int, float]:
        self.asked.append((list(alive), rounds, last))
        return {t: self.scores[t][rounds] for t in alive if rounds in self.scores[t]}


def test_a_third_goes_on_and_the_last_rung_decides():
    rising = {t: {3: t / 10, 9: t / 10, 27: -t / 10} for t in range(9)}
    table = Table(rising)
    assert halve([0] * 9, (3, 9, 27), table.advance) == [7, 8]
    assert table.asked == [(list(range(9)), 3, False), ([6, 7, 8], 9, False), ([7, 8], 27, True)]


def test_the_best_of_every_group_go_on():
    table = Table({t: {3: t / 10, 9: t / 10, 27: t / 10} for t in range(9)})
    assert halve([0, 0, 0, 0, 1, 1, 1, 1, 1], (3, 9, 27), table.advance) == [8, 7, 3]
    assert table.asked[1:] == [([2, 3, 7, 8], 9, False), ([3, 7, 8], 27, True)]


def test_the_best_of_the_first_group_reaches_the_last_rung():
    """A method as it is if run by its name may learn slowly."""
    table = Table({t: {3: t / 10, 9: t / 10, 27: 1.0 if t == 1 else 0.5} for t in range(9)})
    assert halve([0, 0, *[1] * 7], (3, 9, 27), table.advance)[0] == 1
    assert table.asked[-1] == ([1, 7, 8], 27, True)


def test_of_equals_the_first_one_wins():
    table = Table({t: {3: 0.5, 9: 0.5} for t in range(6)})
    assert halve([0] * 6, (3, 9), table.advance)[0] == 0


def test_a_trial_that_fails_is_left_behind():
    table = Table({0: {}, 1: {3: 0.1, 9: 0.1}, 2: {3: 0.9}, 3: {3: 0.2, 9: 0.3}})
    assert halve([0] * 4, (3, 9), table.advance) == [3]


def test_nothing_is_left_if_all_fail():
    assert halve([0] * 2, (3, 9), Table({0: {}, 1: {}}).advance) == []


@pytest.mark.parametrize(("trials", "go_on"), [(36, 12), (12, 4), (4, 2), (2, 2), (1, 1)])
def test_how_many_go_on(trials: int, go_on: int):
    assert kept(trials) == go_on


def test_the_work_of_a_search_counts_every_rung():
    assert estimate([1.0] * 9, (3, 9), [0] * 9) == 9 * 3 + (3 + 1) * 6  # one more: the best of the first group
    assert estimate([1.0] * 12, (3, 9, 27), [0] * 9 + [1] * 3) == 12 * 3 + 5 * 6 + (2 + 1) * 18
    assert estimate([1.0], (3, 9), [0]) == 9


def test_trials_are_given_up_before_rounds_are():
    many, few = work.ENOUGH, work.FEWEST
    assert preferences((3, 9, 27, 81)) == [
        (many, (3, 9, 27, 81)),
        (many, (3, 9, 27)),
        (few, (3, 9, 27)),
        (few, (3, 9)),
        (few, (3,)),
    ]
    assert preferences((3, 5)) == [(many, (3, 5)), (few, (3, 5)), (few, (3,))]


PLANS = [(60, 30, 81), (12, 30, 27), (8, 18, 27), (4.5, 6, 27), (1.4, 3, 9), (0.6, 4, 3)]
"""Minutes, how many of 30 trials they are enough for if a round takes 6 s, and for how many rounds."""


@pytest.mark.parametrize(("budget", "trials", "rungs"), PLANS)
def test_the_plan_follows_the_budget(monkeypatch, budget: float, trials: int, rungs: int):
    monkeypatch.setattr(work, "seconds_per_round", lambda one, data: 6.0)
    found = plan([Named(0) for _ in range(30)], None, budget, 81)
    assert (found.trials, found.rungs[-1]) == (trials, rungs)
    assert found.seconds <= 60 * budget * work.CORES


def test_every_layer_counts():
    table = build(ModelSpec("mlp", hidden=7), (5,), 3, 0)
    assert products(table, torch.zeros(1, 5)) == 5 * 7 + 7 * 3
    image = build(ModelSpec("cnn"), (1, 8, 8), 3, 0)
    layers = [m for m in image.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
    first, *_ = layers
    at_least = first.weight.numel() * 8 * 8 + layers[-1].weight.numel()
    assert products(image, torch.zeros(1, 1, 8, 8)) > at_least


@dataclass(frozen=True)
class Named:
    """A combination of this recipe."""

    recipe: int
