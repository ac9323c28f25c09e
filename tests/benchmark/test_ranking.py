"""Ranks and paired intervals, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
from scipy.stats import t, ttest_ind

from imperfed.benchmark.ranking import PairedInterval, interval, mean_ranks, paired, places


def test_the_interval_of_one_dataset_is_students() -> None:
    found = interval([[1.0, 2.0, 3.0]])
    reach = 4.302653 / math.sqrt(3)  # t at 0.975 with 2 degrees of freedom; deviation 1
    assert (found.mean, found.low, found.high) == pytest.approx((2.0, 2 - reach, 2 + reach), abs=1e-5)
    assert not found.is_clear
    assert interval([[1.0, 1.1, 1.2]]).is_clear
    assert interval([[-1.0, -1.1, -1.2]]).is_clear


def test_over_datasets_variances_of_means_add_and_freedom_is_satterthwaites() -> None:
    found = interval([[1.0, 3.0], [2.0, 6.0, 4.0]])
    first, second = 2 / 2 / 4, 4 / 3 / 4  # s^2 / n / J^2
    variance = first + second
    freedom = variance**2 / (first**2 / 1 + second**2 / 2)
    assert found.mean == 3.0  # each dataset counts once, however many seeds it has
    assert found.high - 3 == pytest.approx(float(t.ppf(0.975, freedom)) * math.sqrt(variance))


def test_two_datasets_are_compared_as_by_welch() -> None:
    """The interval of the mean of two means is half that of Welch's test of one dataset against the other, reversed."""
    one, other = [0.02, 0.05, -0.01], [0.10, 0.30, 0.25, 0.15]
    found = interval([one, other])
    expected = ttest_ind(one, [-value for value in other], equal_var=False).confidence_interval()
    assert (2 * found.low, 2 * found.high) == pytest.approx(tuple(expected))


def test_one_seed_and_equal_differences_have_no_interval() -> None:
    alone = interval([[1.0], [1.0, 2.0]])
    assert (alone.low, alone.high, alone.is_clear) == (-math.inf, math.inf, False)
    assert interval([[0.5, 0.5]]) == PairedInterval(0.5, -math.inf, math.inf)
    assert not interval([[0.5, 0.5 + 1e-16], [0.1, 0.3 - 0.2]]).is_clear  # the same but for rounding
    assert not interval([[0.0, 0.0]]).is_clear


def test_differences_are_taken_seed_by_seed() -> None:
    one, other = {"a": {0: 0.1, 1: 0.5, 2: 0.9}}, {"a": {2: 0.78, 1: 0.4, 0: 0.02}}
    found = paired(one, other)
    assert found is not None
    assert (found.mean, found.low, found.high) == pytest.approx((0.1, 0.05032, 0.14968), abs=1e-5)
    assert paired(one, {"a": {0: math.nan, 1: 0.0, 2: 0.0}}) is None
    assert paired(one, {"a": {7: 0.0}}) is None


FIGURES = {
    "good": {"a": {0: 0.9, 1: 0.8}, "b": {0: 0.7, 1: 0.7}},
    "even": {"a": {0: 0.5, 1: 0.8}, "b": {0: 0.6, 1: 0.6}},
    "lost": {"a": {0: math.nan, 1: 0.1}, "b": {0: 0.1, 1: 0.2}},
}


def test_ranks_are_means_over_datasets_and_seeds() -> None:
    assert mean_ranks(FIGURES, high=True) == {"good": (1 + 1.5 + 1 + 1) / 4, "even": (2 + 1.5 + 2 + 2) / 4, "lost": 3}
    low = mean_ranks(FIGURES, high=False)
    assert low["lost"] == (3 + 1 + 1 + 1) / 4  # what diverged is last whichever way figures go
    assert low["good"] == (2 + 2.5 + 3 + 3) / 4


CLEAR = {
    "c": {"a": {0: 0.30, 1: 0.51, 2: 0.70}},
    "b": {"a": {0: 0.50, 1: 0.70, 2: 0.91}},
    "x": {"a": {0: 0.10, 1: 0.90, 2: 0.50}},
}


def test_places_say_what_differs_clearly() -> None:
    found = {place.method: place for place in places(CLEAR, high=True)}
    assert [found[name].to_best is None for name in "bcx"] == [True, False, False]
    assert [(found[name].above, found[name].below) for name in "bcx"] == [(1, 0), (0, 1), (0, 0)]
    assert found["c"].to_best is not None
    assert found["c"].to_best.mean == pytest.approx(-0.2)
    low = {place.method: place for place in places(CLEAR, high=False)}
    assert [(low[name].above, low[name].below) for name in "bcx"] == [(0, 1), (1, 0), (0, 0)]
    assert low["x"].to_best is None or low["c"].to_best is None
    assert places(CLEAR, high=False)[0].method != "b"


def test_an_interval_that_touches_0_is_not_clear() -> None:
    assert not PairedInterval(1.0, 0.0, 2.0).is_clear
    assert not PairedInterval(-1.0, -2.0, 0.0).is_clear
    assert PairedInterval(1.0, 0.01, 2.0).is_clear


@pytest.mark.parametrize("high", [True, False])
def test_of_equal_ranks_the_better_mean_comes_first(high: bool) -> None:
    figures = {"a": {"d": {0: 0.1, 1: 0.4}}, "b": {"d": {0: 0.2, 1: 0.2}}}  # each is the better one once
    assert [place.method for place in places(figures, high)] == (["a", "b"] if high else ["b", "a"])


def test_a_method_that_diverged_is_never_the_best() -> None:
    found = places(FIGURES, high=True)
    assert [place.method for place in found if place.to_best is None] == ["good", "lost"]
    found = places(FIGURES, high=False)
    assert next(place for place in found if place.method == "even").to_best is None  # the lowest mean that there is
    assert next(place for place in found if place.method == "lost").to_best is None
    assert math.isnan(next(place for place in found if place.method == "lost").mean)
