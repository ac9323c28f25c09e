"""Whether methods of a comparison differ: seed by seed on the same splits, or over test rows where there is one seed.

Intervals are 95 % ones: Student's t over seeds, or a bootstrap over test rows. As each method is compared with the best
one, there are several chances to find a difference by luck; Holm's correction of the p values allows for that.

Where a figure is coarse, all seeds may have the same difference. That says nothing about how far seeds differ, so there
is no interval, and the p value is that of the sign test.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import Any

from torch import Tensor

from imperfed.evaluation.paired import LEVEL, Difference, interval_of_mean
from imperfed.experiments.comparison_line import Line
from imperfed.experiments.federating_gain import RowFigures, over_rows_of

SEEDS, ROWS = "seeds", "test rows"
"""What an interval is over."""
ALIKE = 1e-9
"""The spread up to which values are the same but for rounding."""


@dataclass(frozen=True)
class Interval:
    """Where a figure lies with a confidence of 95 %."""

    low: float
    high: float
    over: str
    n: int
    """How many seeds or test rows."""


@dataclass(frozen=True)
class SeedDifference:
    """How a method differs from the best one."""

    method: str
    best: str
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    """The method's figure less that of the best one, by seed."""
    interval: Interval | None = None
    p: float | None = None
    """How probable so clear a mean is if only the seeds make a difference; None where the interval is over rows."""

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return statistics.fmean(self.values)

    @property
    def is_clear(self) -> bool:
        """Whether the difference is more than chance explains."""
        if self.p is not None:
            return self.p < 1 - LEVEL
        return self.interval is not None and not self.interval.low <= 0 <= self.interval.high

    def sentence(self) -> str:
        """Return what the difference means."""
        if self.p is None and self.interval is None:
            return "one seed, and no test rows to compare on: nothing can be said"
        if self.p is None:
            return f"{self._found} on these test rows; with one seed only, another seed may differ"
        p = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"
        return f"{self._found}, {p}"

    @property
    def _found(self) -> str:
        """What was found: a method can be better on the seeds that it shares with the best one, if others diverged."""
        if not self.is_clear:
            return "no difference shown"
        return "worse" if self.mean < 0 else "better"

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**asdict(self), "mean": self.mean, "is_clear": self.is_clear, "sentence": self.sentence()}


def interval_of(line: Line) -> Interval | None:
    """Return the interval of a method's mean: over seeds, or over test rows for one seed."""
    if len(line.values) > 1:
        return over_seeds(line.values)
    return _over_rows(line, None, line.seeds[0]) if line.seeds else None


def differences(lines: Sequence[Line]) -> list[SeedDifference]:
    """Compare every method with the best one, the closest first."""
    rows = [line for line in lines if line.values and line.seeds]
    if len(rows) < 2:
        return []
    best = max(rows, key=lambda line: line.mean)
    found = [one for line in rows if line is not best and (one := difference(line, best)) is not None]
    return sorted(corrected(found), key=lambda one: -one.mean)


def difference(line: Line, best: Line) -> SeedDifference | None:
    """Compare a method with the best one; None if they have no seed in common."""
    ours, theirs = (dict(zip(one.seeds, one.values, strict=True)) for one in (line, best))
    found = paired(line.method, best.method, ours, theirs)
    if found is None or len(found.seeds) > 1:
        return found
    return replace(found, interval=_over_rows(line, best, found.seeds[0]))


def paired(name: str, best: str, ours: Mapping[int, float], theirs: Mapping[int, float]) -> SeedDifference | None:
    """Compare figures by seed; None if there is no seed in common."""
    seeds = tuple(seed for seed in ours if seed in theirs)
    if not seeds:
        return None
    found = SeedDifference(name, best, seeds, tuple(ours[seed] - theirs[seed] for seed in seeds))
    if len(seeds) == 1:
        return found
    return replace(found, interval=over_seeds(found.values), p=p_of(found.values))


def over_seeds(values: Sequence[float]) -> Interval | None:
    """Return the interval of a mean over seeds, by Student's t; None where all of them have the same value."""
    if statistics.stdev(values) <= ALIKE:
        return None
    return Interval(*interval_of_mean(values), SEEDS, len(values))


def p_of(values: Sequence[float]) -> float:
    """Return the p value of a mean that should be 0, by Student's t; by the sign test where all values are the same."""
    from scipy.stats import t

    spread, mean = statistics.stdev(values), statistics.fmean(values)
    if spread <= ALIKE:
        return 1.0 if abs(mean) <= ALIKE else 0.5 ** (len(values) - 1)
    return 2 * float(t.sf(abs(mean) / spread * math.sqrt(len(values)), len(values) - 1))


def corrected(found: Sequence[SeedDifference]) -> list[SeedDifference]:
    """Return the differences with p values that allow for how many there are, by Holm's method."""
    tested = sorted((one for one in found if one.p is not None), key=lambda one: one.p or 0.0)
    raised = [min(1.0, (len(tested) - rank) * (one.p or 0.0)) for rank, one in enumerate(tested)]
    adjusted = accumulate(raised, max)
    return [
        *(replace(one, p=p) for one, p in zip(tested, adjusted, strict=True)),
        *(one for one in found if one.p is None),
    ]


def _over_rows(line: Line, best: Line | None, seed: int) -> Interval | None:
    """Return the interval of a figure, or of its difference from the best one, over the test rows of one seed."""
    if seed not in line.by_row or (best is not None and seed not in best.by_row):
        return None
    ours = line.by_row[seed]()
    theirs = ours if best is None else best.by_row[seed]()
    if not ours.sites or ours.sizes != theirs.sizes:
        return None
    found = over_rows_of([_paired(ours, theirs, best is None)], ours.one_test)
    return None if found is None else _interval(found)


def _paired(ours: RowFigures, theirs: RowFigures, alone: bool) -> list[tuple[int, Any, Any]]:
    pairs = zip(ours.sites, theirs.sites, strict=True)
    return [(n, figure, _nothing if alone else other) for (n, figure), (_, other) in pairs]


def _nothing(rows: Tensor) -> float:
    return 0.0


def _interval(found: Difference) -> Interval:
    return Interval(found.low, found.high, ROWS, found.n)
