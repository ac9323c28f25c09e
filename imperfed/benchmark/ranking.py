"""Ranks of methods, and how far chance may have made a difference: paired over seeds, with fixed datasets.

A seed has its own split, rows, and initial weights, the same for all methods. So the difference d of two methods is
taken seed by seed, and a t interval over the seeds says where its mean lies. Over several datasets, the mean of their
means has the variance sum_j s_j^2 / n_j / J^2, and as many degrees of freedom as Welch and Satterthwaite give it: what
is said is about these datasets with other seeds, not about other datasets.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import rankdata, t

LEVEL = 0.95
ALIKE = 1e-9
"""The spread up to which differences are the same but for rounding."""
Figures = Mapping[str, Mapping[str, Mapping[int, float]]]
"""By method, dataset and seed; NaN where a run diverged."""


@dataclass(frozen=True)
class PairedInterval:
    """The mean of a difference, and its 95 % interval over the seeds.

    It is infinite where the seeds do not show how far they differ: there is one, or all have the same difference, as
    happens by chance where a figure is coarse.
    """

    mean: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether it leaves out 0."""
        return not self.low <= 0 <= self.high


def interval(differences: Sequence[Sequence[float]]) -> PairedInterval:
    """Return the interval of the mean over datasets, of which each has its differences by seed."""
    mean = statistics.fmean(map(statistics.fmean, differences))
    if min(map(len, differences)) < 2:
        return PairedInterval(mean, -math.inf, math.inf)
    parts = [statistics.variance(one) / len(one) / len(differences) ** 2 for one in differences]
    variance = math.fsum(parts)
    if math.sqrt(variance) <= ALIKE:
        return PairedInterval(mean, -math.inf, math.inf)
    freedom = variance**2 / math.fsum(p**2 / (len(d) - 1) for p, d in zip(parts, differences, strict=True))
    reach = float(t.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(variance)
    return PairedInterval(mean, mean - reach, mean + reach)


def mean_of(by_dataset: Mapping[str, Mapping[int, float]]) -> float:
    """Return the mean over datasets and seeds; NaN if a run diverged."""
    return statistics.fmean(statistics.fmean(by_seed.values()) for by_seed in by_dataset.values())


def paired(one: Mapping[str, Mapping[int, float]], other: Mapping[str, Mapping[int, float]]) -> PairedInterval | None:
    """Return by how much one method is above the other where both have the same seeds; None where a run diverged."""
    differences = [
        [values[seed] - other[name][seed] for seed in sorted(set(values) & set(other[name]))]
        for name, values in one.items()
    ]
    if not all(differences) or any(math.isnan(d) for of_dataset in differences for d in of_dataset):
        return None
    return interval(differences)


def mean_ranks(figures: Figures, high: bool) -> dict[str, float]:
    """Return the mean rank of every method over datasets and seeds, 1 the best; equals share one, NaN is last.

    All methods have the same datasets and seeds.
    """
    ranks: dict[str, list[float]] = {method: [] for method in figures}
    places = {(name, seed) for one in figures.values() for name, values in one.items() for seed in values}
    for name, seed in sorted(places):
        values = [one[name][seed] * (-1 if high else 1) for one in figures.values()]
        found = rankdata([math.inf if math.isnan(value) else value for value in values])
        for method, rank in zip(figures, found, strict=True):
            ranks[method].append(float(rank))
    return {method: statistics.fmean(found) for method, found in ranks.items()}


@dataclass(frozen=True)
class MethodPlace:
    """What is said of one method beside the others."""

    method: str
    rank: float
    mean: float
    to_best: PairedInterval | None
    """Its difference to the method with the best mean; None for that one, or where a run diverged."""
    above: int
    """How many of the others are clearly worse."""
    below: int
    """How many are clearly better."""


def places(figures: Figures, high: bool) -> list[MethodPlace]:
    """Return all methods with the same datasets and seeds, those of the best mean rank first."""
    ranks, means = mean_ranks(figures, high), {method: mean_of(one) for method, one in figures.items()}
    worst = -math.inf if high else math.inf
    sign = 1 if high else -1
    best = max(figures, key=lambda method: sign * (worst if math.isnan(means[method]) else means[method]))
    found = []
    for method, one in figures.items():
        others = [paired(one, other) for name, other in figures.items() if name != method]
        clear = [sign * difference.mean for difference in others if difference is not None and difference.is_clear]
        to_best = None if method == best else paired(one, figures[best])
        above = sum(difference > 0 for difference in clear)
        found.append(MethodPlace(method, ranks[method], means[method], to_best, above, len(clear) - above))
    return sorted(found, key=lambda place: (place.rank, -sign * place.mean))
