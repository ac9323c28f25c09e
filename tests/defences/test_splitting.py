"""The exact split in two, and when it is none."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from imperfed.defences.fairfedpapl.splitting import (
    chance,
    clear,
    distances,
    ratios_by_chance,
    too_near,
    too_usual,
    two_means,
)

APART = torch.tensor([0.02, 0.03, 0.05, 0.04, 0.31, 0.29, 0.33, 0.06, 0.30, 0.03], dtype=torch.float64)
EVEN = torch.tensor([0.02, 0.07, 0.11, 0.16, 0.21, 0.24, 0.30, 0.33, 0.38, 0.42], dtype=torch.float64)


@pytest.mark.parametrize(
    ("scores", "members", "low", "high", "threshold", "ratio"),
    [(APART, 4, 0.038333, 0.3075, 0.175, 0.011137), (EVEN, 5, 0.114, 0.334, 0.225, 0.256026)],
)
def test_two_samples(scores, members, low, high, threshold, ratio):
    split = two_means(scores)
    assert split.members == members
    found = (split.low_mean, split.high_mean, split.threshold, split.ratio)
    assert found == pytest.approx((low, high, threshold, ratio), abs=1e-6)
    assert torch.equal(split.high, scores > threshold)


def test_the_deviation_is_of_the_lower_group_alone():
    split = two_means(torch.tensor([1.0, 2.0, 3.0, 20.0, 30.0]))
    assert split.low_sd == pytest.approx((2 / 3) ** 0.5)
    assert split.gap == pytest.approx(23.0)


def test_equal_scores_do_not_split():
    assert two_means(torch.full((6,), 0.3)) is None
    assert two_means(torch.tensor([0.3])) is None
    assert two_means(torch.tensor([])) is None


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=9))
def test_no_cut_is_better(values: list[int]):
    s = np.sort(np.array(values, dtype=float))
    if s[0] == s[-1]:
        return
    cuts = [((s[:k] - s[:k].mean()) ** 2).sum() + ((s[k:] - s[k:].mean()) ** 2).sum() for k in range(1, len(s))]
    split = two_means(torch.tensor(values))
    assert split.ratio * ((s - s.mean()) ** 2).sum() == pytest.approx(min(cuts), abs=1e-9)


def test_a_small_group_far_away_passes_the_guard_by_distance():
    ten = torch.tensor([0.0, 0.1, 0.2, 0.1, 0.0, 0.2, 0.1, 1.0, 1.1, 0.9])
    assert too_near(two_means(ten), 10, 4.0, 0.3) is None
    assert "11.91 standard deviations away, 12.00 are needed" in too_near(two_means(ten), 10, 12.0, 0.3)


def test_one_group_must_be_small_to_be_bad():
    assert too_near(two_means(APART), 10, 4.0, 0.2) is None
    five = torch.tensor([0.0, 0.01, 0.02, 0.01, 0.0, 1.0, 1.1, 0.9, 1.0, 1.0])
    assert "5 of 10 on the high side, at most 4" in too_near(two_means(five), 10, 4.0, 0.3)
    assert "too few" in too_near(two_means(torch.tensor([0.0, 0.0, 9.0])), 3, 4.0, 0.3)


def test_the_means_must_be_apart_in_the_units_of_the_score():
    assert "the means are 0.269 apart, 0.3 is needed" in too_near(two_means(APART), 10, 4.0, 0.3)
    assert too_near(two_means(APART), 10, 4.0, 0.26) is None


def test_scores_without_groups_are_not_split():
    assert "5 of 10" in too_near(two_means(EVEN), 10, 4.0, 0.3)
    assert "3.89 standard deviations" in too_near(two_means(torch.tensor([0.0, 1, 2, 3, 4, 7, 8])), 7, 4.0, 0.3)
    assert "probability 0.7" in too_usual(two_means(EVEN), 10, 0.05, 0.05)


def test_the_stricter_guard():
    assert too_usual(two_means(APART), 10, 0.05, 0.05) is None
    assert "apart" in too_usual(two_means(APART / 10), 10, 0.05, 0.05)
    why = too_usual(two_means(torch.tensor([0.0, 0.1, 0.1, 0.0, 0.1, 5.0])), 6, 0.05, 0.05)
    assert why == "a group of 1 is below the minimum of 2"
    assert "too few" in too_usual(two_means(torch.tensor([0.0, 0.0, 9.0])), 3, 0.05, 0.05)


def test_no_guard_puts_the_majority_out():
    """Two sites far below the eight others: the eight are not the adversaries."""
    split = two_means(torch.tensor([-0.40, -0.42, 0.01, 0, -0.01, 0.02, -0.02, 0.01, 0, 0.015]))
    assert split.members == 8
    for why in (too_usual(split, 10, 0.05, 0.05), too_near(split, 10, 4.0, 0.3)):
        assert why == "8 of 10 on the high side, at most 4 can be adversaries"


@pytest.mark.parametrize(("n", "five", "one"), [(4, 0.0098, 0.0018), (10, 0.0935, 0.0564), (30, 0.1624, 0.1341)])
def test_the_null_law_has_the_known_critical_values(n: int, five: float, one: float):
    law = ratios_by_chance(n)
    assert float(law.quantile(0.05)) == pytest.approx(five, rel=0.06)
    assert float(law.quantile(0.01)) == pytest.approx(one, rel=0.15)


@pytest.mark.parametrize(("n", "four"), [(10, 0.148), (20, 0.030), (40, 0.002)])
def test_four_deviations_are_more_or_less_by_the_number_of_sites(n: int, four: float):
    """The shares of 40,000 normal samples that a guard of four deviations lets through."""
    assert clear(n, four) == pytest.approx(4.0, abs=0.15)


def test_the_distances_of_samples_are_those_of_their_splits():
    s = torch.randn(50, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).sort(-1).values
    for sample, distance in zip(s, distances(s).tolist(), strict=True):
        split = two_means(sample)
        assert distance == pytest.approx(split.gap / split.low_sd if split.members <= 3 else 0.0)


def test_chances():
    assert chance(0.011137, 10) < 5e-4
    assert chance(0.256026, 10) == pytest.approx(0.72, abs=0.02)
    assert all(chance(a, 10) <= chance(b, 10) for a, b in pairwise((0.0, 0.05, 0.1, 0.3, 1.0)))
    assert chance(1.0, 10) == 1.0
