"""Differences of two models on the same rows: means over sites, bootstrap intervals, and how sites' ones combine."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import bootstrap
from torch import Tensor

from imperfed.evaluation import paired
from imperfed.evaluation.paired import Difference, Figure, combined, over_rows, paired_difference


def right_on(*hits: float) -> Figure:
    """The share of rows that a model gets right, row by row 1 or 0."""
    values = torch.tensor(hits, dtype=torch.float64)
    return lambda rows: float(values[rows].mean())


def undefined(rows: Tensor) -> float:
    return math.nan


def test_means_are_over_sites_and_rows_are_counted_once() -> None:
    sites = [(4, right_on(1, 1, 1, 0), right_on(1, 0, 0, 0)), (2, right_on(0, 0), right_on(1, 1))]
    found = paired_difference(sites, seed=0)
    assert found is not None
    assert (found.first, found.second, found.n) == ((0.75 + 0) / 2, (0.25 + 1) / 2, 6)
    assert found.low < found.first - found.second < found.high


def test_sites_without_rows_or_without_a_figure_are_left_out() -> None:
    known = (4, right_on(1, 1, 1, 0), right_on(1, 0, 0, 0))
    found = paired_difference([(0, undefined, undefined), known, (3, undefined, right_on(1, 1, 1))], seed=0)
    assert found is not None
    assert (found.first, found.second) == (0.75, 0.25)
    assert paired_difference([(3, undefined, undefined)], seed=0) is None
    assert paired_difference([], seed=0) is None


def test_one_row_counts_as_a_site_too() -> None:
    found = paired_difference([(1, right_on(1), right_on(0))], seed=0)
    assert found == Difference(1.0, 0.0, 1.0, 1.0, 1)


def test_the_interval_is_that_of_the_bootstrap_over_pairs() -> None:
    """Both models are measured on the rows that were drawn, so what they get wrong together does not widen it."""
    draw = np.random.default_rng(0)
    ours, theirs = (draw.random(400) < share for share in (0.8, 0.7))
    found = paired_difference([(400, right_on(*ours), right_on(*theirs))], seed=1)
    expected = bootstrap((ours * 1.0 - theirs,), np.mean, method="percentile", rng=np.random.default_rng(1))
    assert found is not None
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval), abs=0.012)
    same = paired_difference([(400, right_on(*ours), right_on(*ours))], seed=1)
    assert same is not None
    assert (same.low, same.high) == (0.0, 0.0)


def test_the_interval_has_nineteen_of_twenty_resampled_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paired, "DRAWS", 4000)
    draw = torch.Generator().manual_seed(0)
    first, second = torch.randn(900, generator=draw) + 1, torch.zeros(900)

    def mean(values: Tensor, rows: Tensor) -> float:
        return float(values[rows].mean())

    found = paired_difference([(900, lambda rows: mean(first, rows), lambda rows: mean(second, rows))], seed=0)
    assert found is not None
    error = float(first.std()) / 30
    assert (found.low - found.first) / error == pytest.approx(-1.96, abs=0.1)
    assert (found.high - found.first) / error == pytest.approx(1.96, abs=0.1)


def test_rows_that_all_sites_share_are_drawn_once_for_all() -> None:
    """Two sites with opposite gains on the same rows: their mean never changes, unless each drew rows of its own."""
    one, other = right_on(*[1, 0] * 20), right_on(*[0, 1] * 20)
    nothing = right_on(*[0] * 40)
    sites = [(40, one, nothing), (40, other, nothing)]
    shared, apart = (paired_difference(sites, seed=0, same_rows=same) for same in (True, False))
    assert shared is not None
    assert apart is not None
    assert (shared.low, shared.high, shared.n) == (0.5, 0.5, 40)
    assert apart.low < 0.5 < apart.high
    assert apart.n == 80


def test_intervals_of_sites_combine_by_the_root_of_squares() -> None:
    one = Difference(0.8, 0.5, 0.27, 0.34, 30)  # 0.03 down, 0.04 up
    other = Difference(0.6, 0.5, 0.06, 0.13, 50)  # 0.04 down, 0.03 up
    found = combined([one, other])
    assert found is not None
    assert (found.first, found.second, found.n) == (pytest.approx(0.7), pytest.approx(0.5), 80)
    assert (found.low, found.high) == pytest.approx((0.2 - 0.05 / 2, 0.2 + 0.05 / 2))
    alone = combined([one])
    assert alone is not None
    assert (alone.low, alone.high) == pytest.approx((one.low, one.high))
    outside = combined([Difference(0.8, 0.5, 0.31, 0.4, 3)])  # a skewed bootstrap may leave out the figure itself
    assert outside is not None
    assert outside.low == pytest.approx(0.3)
    assert combined([]) is None


def test_a_figure_over_rows_takes_these_rows_alone() -> None:
    figure = over_rows(lambda logits, y: float((logits.argmax(1) == y).double().mean()), torch.eye(3), torch.arange(3))
    assert figure(torch.tensor([0, 1])) == 1.0
    swapped = over_rows(lambda logits, y: float(logits[:, 0].sum() + y.sum()), torch.eye(3), torch.arange(3))
    assert swapped(torch.tensor([0, 2, 2])) == 5.0
