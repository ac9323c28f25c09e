"""Whether methods differ: intervals over seeds and over rows, and p values that allow for several comparisons."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
import torch
from scipy.stats import ttest_1samp

from imperfed.experiments.comparison_line import Line
from imperfed.experiments.federating_gain import RowFigures
from imperfed.experiments.seed_differences import (
    SeedDifference,
    corrected,
    differences,
    interval_of,
    over_seeds,
    p_of,
)


def line(method: str, values: tuple[float, ...], seeds: tuple[int, ...] = (0, 1, 2)) -> Line:
    return Line(method, values, (), 1.0, None, seeds=seeds)


def test_the_interval_over_seeds_is_students() -> None:
    """t with two degrees of freedom has its 97.5 % quantile at 4.3027."""
    found = over_seeds((0.5, 0.6, 0.7))
    assert found is not None
    assert (found.over, found.n) == ("seeds", 3)
    assert found.high - 0.6 == pytest.approx(4.3027 * 0.1 / 3**0.5, abs=1e-5)
    assert found.low + found.high == pytest.approx(1.2)


def test_the_p_value_belongs_to_the_interval() -> None:
    """At the 97.5 % quantile of t, the p value of both sides is 5 %."""
    mean = 4.30265 * 0.1 / 3**0.5
    assert p_of((mean - 0.1, mean, mean + 0.1)) == pytest.approx(0.05, abs=1e-5)
    assert p_of((0.0, 0.0)) == 1.0


@pytest.mark.parametrize("values", [(0.1, 0.4), (0.02, -0.05, 0.01, 0.08), (-0.3, -0.2, -0.25)])
def test_intervals_and_p_values_are_those_of_scipy(values: tuple[float, ...]) -> None:
    found, expected = over_seeds(values), ttest_1samp(values, 0.0)
    assert found is not None
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert p_of(values) == pytest.approx(expected.pvalue)


def test_the_same_difference_in_every_seed_is_judged_by_its_sign() -> None:
    """With a coarse figure that is likely: three seeds of one sign happen by chance in one of four cases."""
    assert over_seeds((0.1, 0.1, 0.1)) is None
    assert p_of((0.1, 0.3 - 0.2, 0.1)) == 0.25  # the same but for rounding
    assert p_of((-0.1,) * 6) == 0.5**5
    (found,) = differences([line("best", (0.9, 0.8, 0.7)), line("next", (0.8, 0.7, 0.6))])
    assert not found.is_clear
    assert found.interval is None
    assert found.sentence() == "no difference shown, p = 0.250"


def test_what_is_better_on_the_seeds_that_both_have_is_not_called_worse() -> None:
    (found,) = differences([line("best", (0.99, 0.3, 0.5)), line("next", (0.5, 0.65), (1, 2))])
    assert found.mean > 0
    replaced = replace(found, p=0.01)
    assert replaced.sentence() == "better, p = 0.010"


def test_several_comparisons_raise_the_p_values_by_holms_method() -> None:
    found = [SeedDifference(str(p), "best", (0, 1), (0.0, 0.1), p=p) for p in (0.04, 0.01, 0.03)]
    assert [(one.method, one.p) for one in corrected(found)] == [("0.01", 0.03), ("0.03", 0.06), ("0.04", 0.06)]


def test_methods_are_compared_with_the_best_one_seed_by_seed() -> None:
    lines = [line("near", (0.7, 0.6, 0.8)), line("best", (0.75, 0.61, 0.83)), line("far", (0.3, 0.2, 0.4))]
    near, far = differences(lines)
    assert (near.method, near.best, far.method) == ("near", "best", "far")
    assert near.values == pytest.approx((-0.05, -0.01, -0.03))
    assert near.mean == pytest.approx(statistics.fmean(near.values))
    assert (near.is_clear, far.is_clear) == (False, True)
    assert near.interval == over_seeds(near.values)
    assert near.sentence().startswith("no difference shown, p = 0.")
    assert far.sentence().startswith("worse, p")


def test_a_mean_over_several_seeds_has_the_interval_over_seeds() -> None:
    for values in ((0.5, 0.6, 0.7), (0.5, 0.6)):
        assert interval_of(line("a", values, tuple(range(len(values))))) == over_seeds(values)


def test_nothing_can_be_said_without_an_interval() -> None:
    found = SeedDifference("a", "best", (0,), (-0.5,))
    assert not found.is_clear
    assert found.sentence() == "one seed, and no test rows to compare on: nothing can be said"


def test_a_method_without_a_figure_is_not_compared() -> None:
    diverged, ours, theirs = line("lost", ()), line("a", (0.1, 0.2, 0.3)), line("b", (0.2, 0.4, 0.6))
    assert [one.method for one in differences([diverged, ours, theirs])] == ["a"]
    assert differences([diverged, ours]) == []


def test_only_seeds_that_both_have_are_compared() -> None:
    diverged_once = line("a", (0.5, 0.7), (0, 2))
    (found,) = differences([diverged_once, line("b", (0.6, 0.1, 0.9))])
    assert (found.method, found.best, found.seeds) == ("b", "a", (0, 2))
    assert found.values == pytest.approx((0.1, 0.2))


def test_one_seed_is_judged_by_test_rows_and_says_so() -> None:
    """A figure that is right on a share of the rows; the interval is that of a bootstrap over them."""

    def of(method: str, right: int) -> Line:
        hits = (torch.arange(200) < right).double()
        figures = RowFigures(((200, lambda rows: float(hits[rows].mean())),), False)
        return replace(line(method, (right / 200,), (4,)), by_row={4: lambda: figures})

    best, worse, close = of("best", 180), of("worse", 100), of("close", 179)
    found = {one.method: one for one in differences([best, worse, close])}
    assert found["worse"].is_clear
    assert not found["close"].is_clear
    assert found["worse"].sentence() == "worse on these test rows; with one seed only, another seed may differ"
    alone = interval_of(best)
    assert alone is not None
    assert (alone.over, alone.n) == ("test rows", 200)
    assert alone.low < 0.9 < alone.high
    assert alone.high - alone.low == pytest.approx(2 * 1.96 * (0.9 * 0.1 / 200) ** 0.5, rel=0.2)
    assert interval_of(line("no rows", (0.5,), (4,))) is None


def test_the_one_seed_that_both_have_is_the_one_whose_rows_are_compared() -> None:
    """The best method diverged with the other method's first seed."""

    def of(method: str, right: dict[int, int]) -> Line:
        hits = {seed: (torch.arange(200) < n).double() for seed, n in right.items()}
        figures = {
            seed: RowFigures(((200, lambda rows, of_seed=of_seed: float(of_seed[rows].mean())),), False)
            for seed, of_seed in hits.items()
        }
        values = tuple(n / 200 for n in right.values())
        by_row = {seed: lambda one=one: one for seed, one in figures.items()}
        return replace(line(method, values, tuple(right)), by_row=by_row)

    (found,) = differences([of("best", {1: 180}), of("other", {0: 90, 1: 100})])
    assert found.interval is not None
    assert (found.seeds, found.interval.over) == ((1,), "test rows")
    assert found.sentence() == "worse on these test rows; with one seed only, another seed may differ"
