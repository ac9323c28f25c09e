"""Fairness between a target group t and the rest, with the unprivileged class u as the positive class.

    EOD    equal opportunity difference     TPR(t) - TPR(rest), TPR = share of the rows of class u predicted as u
    SPD    statistical parity difference    SR(t) - SR(rest),   SR = share of all rows predicted as u

Positive values: u is predicted more often for the target group. Everything is computed from counts, which add up over
sites; if all sites are evaluated on the same rows, each row counts once, with the mean of the sites' predictions. A
figure with an empty cell is undefined (None), never 0. Except for the sign, EOD is fairlearn's
`equal_opportunity_difference` and SPD its `demographic_parity_difference` for two groups; fairlearn takes the rate of
an empty cell as 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from imperfed.core.errors import UsageError, unknown
from imperfed.core.federation import Attribute
from imperfed.engine.population import Scores

Cells = Callable[[Tensor], Tensor]
"""From counts [..., group, y is u, prediction is u], the cells a figure compares: [..., group, prediction is u]."""

FAIR = "fair/"
"""The prefix of figures of groups of rows; they are reported for all sites together."""
REST, TARGET = 0, 1
GROUPS = ("rest", "target")
RATES = ("fpr", "tpr")
"""Share of rows predicted as u: among rows of other classes (0), among those of class u (1)."""
BY = ("candidate", "true")
"""Membership in the target group: rows with it among their candidates, or rows whose true group it is."""
RESAMPLES, LEVEL = 2000, 0.95
FEWEST = 10
"""The least number of rows in either group for an interval: resampling fewer rows says nothing."""


@dataclass(frozen=True)
class Fairness:
    """The groups between which fairness is measured; empty if it is not measured."""

    target: str = ""  # t: a group of the sensitive attribute
    unprivileged: str = ""  # u: a class

    def between(self, attribute: Attribute | None, classes: tuple[str, ...], data: str) -> Between | None:
        """Resolve the names to column, group and class numbers; None if nothing is to be measured."""
        if not self.target and not self.unprivileged:
            return None
        if attribute is None:
            raise UsageError(f"fairness is measured between groups of a sensitive attribute, and {data} has none")
        if not self.target or not self.unprivileged:
            raise UsageError("fairness.target names a group and fairness.unprivileged a class: give both or neither")
        if self.target not in attribute.values:
            raise unknown(f"group of {attribute.name} (fairness.target)", self.target, attribute.values)
        if self.unprivileged not in classes:
            raise unknown("class (fairness.unprivileged)", self.unprivileged, classes)
        group = attribute.values.index(self.target)
        return Between(self, attribute.first + group, group, classes.index(self.unprivileged))


@dataclass(frozen=True)
class Between:
    """The groups between which fairness is measured, as names and as numbers."""

    names: Fairness
    column: int
    """The input column that is 1 if the target group is among the row's candidates."""
    group: int
    unprivileged: int

    def scores(self, x: Tensor, y: Tensor, predicted: Tensor, groups: Tensor | None) -> Scores:
        """Return the rates of one site's test rows, by true group as well if that is known."""
        scores = rates(BY[0], predicted, y, x[:, self.column] > 0.5, self.unprivileged)
        if groups is not None:
            scores |= rates(BY[1], predicted, y, groups == self.group, self.unprivileged)
        return scores


# -- counts and rates --------------------------------------------------------------------------------------------------


def count(predicted: Tensor, y: Tensor, inside: Tensor, u: int) -> Tensor:
    """Count rows by (in the target group, y is u, prediction is u): int64 [2, 2, 2]."""
    cell = 4 * inside.long() + 2 * (y == u).long() + (predicted == u).long()
    return torch.bincount(cell, minlength=8).view(2, 2, 2)


def rates(by: str, predicted: Tensor, y: Tensor, inside: Tensor, u: int) -> Scores:
    """Return FPR, TPR and accuracy of both groups with their numbers of rows, equivalent to the counts."""
    counts, right = count(predicted, y, inside, u), predicted == y
    scores: Scores = {}
    for g, group in enumerate(GROUPS):
        rows = right[inside.long() == g]
        scores[f"{FAIR}accuracy/{group}/{by}"] = (float(rows.double().mean()), len(rows))
        for c, rate in enumerate(RATES):
            scores[f"{FAIR}{rate}/{group}/{by}"] = (float(share(counts[g, c])), int(counts[g, c].sum()))
    return scores


def rate_names() -> tuple[tuple[str, ...], ...]:
    """Return the names of a site's rates in order: without those by true group, and with them."""
    by_candidate, by_true = (
        tuple(f"{FAIR}{rate}/{group}/{by}" for group in GROUPS for rate in ("accuracy", *RATES)) for by in BY
    )
    return by_candidate, (*by_candidate, *by_true)


def pooled(by: str, sites: Iterable[Mapping[str, tuple[float, int]]], one_test: bool = False) -> Tensor | None:
    """Return the counts of all sites together, from their rates; None if no site has any.

    For sites evaluated on the same rows (`one_test`), return the mean of their counts: float64, of which only the sums
    over predictions are whole numbers.
    """
    counts = [counts_of(by, scores) for scores in sites if f"{FAIR}{RATES[0]}/{GROUPS[0]}/{by}" in scores]
    if not counts:
        return None
    total = torch.stack(counts)
    return total.double().mean(0) if one_test else total.sum(0)


def counts_of(by: str, scores: Mapping[str, tuple[float, int]]) -> Tensor:
    """Recover the counts from one site's rates."""
    counts = torch.zeros(2, 2, 2, dtype=torch.int64)
    for g, group in enumerate(GROUPS):
        for c, rate in enumerate(RATES):
            value, n = scores[f"{FAIR}{rate}/{group}/{by}"]
            predicted = round(value * n) if n else 0
            counts[g, c] = torch.tensor([n - predicted, predicted])
    return counts


def rows_in(counts: Tensor) -> int:
    """Return the number of rows that were counted."""
    return round(float(counts.sum()))


def mean_accuracy(by: str, group: str, sites: Iterable[Mapping[str, tuple[float, int]]]) -> float | None:
    """Return the accuracy on a group's rows over all sites; None if there are none."""
    name = f"{FAIR}accuracy/{group}/{by}"
    measured = [scores[name] for scores in sites if name in scores and scores[name][1]]
    rows = sum(n for _, n in measured)
    return math.fsum(value * n for value, n in measured) / rows if rows else None


# -- figures -----------------------------------------------------------------------------------------------------------


def share(counts: Tensor) -> Tensor:
    """Return the share of rows predicted as u, from counts [..., (not u, u)]; NaN for no rows."""
    return counts[..., 1].double() / counts.sum(-1)


def eod(counts: Tensor) -> Tensor:
    """Return the cells of TPR(t) - TPR(rest): the rows of class u."""
    return counts[..., 1, :]


def spd(counts: Tensor) -> Tensor:
    """Return the cells of SR(t) - SR(rest): all rows."""
    return counts.sum(-2)


FIGURES: dict[str, Cells] = {"eod": eod, "spd": spd}


def difference(cells: Tensor) -> Tensor:
    """Return the target group's share minus that of the rest."""
    shares = share(cells)
    return shares[..., TARGET] - shares[..., REST]


def measure(figure: Cells, counts: Tensor) -> float | None:
    """Return the value of a figure; None if it is undefined."""
    value = float(difference(figure(counts)))
    return None if math.isnan(value) else value


def interval(figure: Cells, counts: Tensor, seed: int = 0) -> tuple[float, float] | None:
    """Return the percentile bootstrap interval over rows; None if there are too few of them.

    Drawing n rows with replacement and counting them is the same as drawing the counts from a multinomial.
    """
    n = rows_in(counts)
    if min(map(rows_in, figure(counts))) < FEWEST:
        return None
    drawn = np.random.default_rng(seed).multinomial(n, (counts.flatten().double() / n).numpy(), RESAMPLES)
    values = difference(figure(torch.from_numpy(drawn).view(-1, 2, 2, 2))).numpy()
    low, high = np.nanquantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def course(sites: Sequence[Mapping[str, tuple[float, int]]], one_test: bool = False) -> Scores:
    """Return a round's figures over all sites, each with the number of rows in the target group's cell."""
    scores: Scores = {}
    for by in BY:
        counts = pooled(by, sites, one_test)
        if counts is None:
            continue
        for name, figure in FIGURES.items():
            cells = figure(counts)
            scores[f"{FAIR}{name}/{by}"] = (float(difference(cells)), rows_in(cells[TARGET]))
        for g, group in enumerate(GROUPS):
            value = mean_accuracy(by, group, sites)
            scores[f"{FAIR}accuracy/{group}/{by}"] = (math.nan if value is None else value, rows_in(counts[g]))
    return scores


# -- the end of a run --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FairnessFigure:
    """A figure on the pooled test rows of all sites; None if undefined."""

    value: float | None
    interval: tuple[float, float] | None
    """The 95 % bootstrap interval over rows; None if there are too few of them."""

    @classmethod
    def of(cls, figure: Cells, counts: Tensor, seed: int) -> FairnessFigure:
        """Compute a figure from counts."""
        return cls(measure(figure, counts), interval(figure, counts, seed))


@dataclass(frozen=True)
class GroupSummary:
    """The test rows of the target group, or of the rest."""

    rows: int
    unprivileged: int
    """The number of rows of the unprivileged class."""
    accuracy: float | None


@dataclass(frozen=True)
class FairnessBetween:
    """Both figures between the target group and the rest, and the underlying counts."""

    eod: FairnessFigure
    spd: FairnessFigure
    rest: GroupSummary
    target: GroupSummary

    @classmethod
    def of(
        cls, by: str, sites: Sequence[Mapping[str, tuple[float, int]]], seed: int, one_test: bool
    ) -> FairnessBetween | None:
        """Combine the rates of all sites; None if no site has rates of this grouping."""
        counts = pooled(by, sites, one_test)
        if counts is None:
            return None
        rest, target = (
            GroupSummary(rows_in(counts[g]), rows_in(counts[g, 1]), mean_accuracy(by, group, sites))
            for g, group in enumerate(GROUPS)
        )
        return cls(FairnessFigure.of(eod, counts, seed), FairnessFigure.of(spd, counts, seed), rest, target)

    def in_words(self, by: str) -> list[str]:
        """Describe each figure in one sentence."""
        cells = (
            ("EOD", self.eod, self.target.unprivileged, self.rest.unprivileged),
            ("SPD", self.spd, self.target.rows, self.rest.rows),
        )
        lines = []
        for name, figure, inside, outside in cells:
            value = "undefined" if figure.value is None else f"{figure.value:+.3f}"
            span = "" if figure.interval is None else " [{:+.3f}, {:+.3f}]".format(*figure.interval)
            lines.append(f"{name} by {by} group: {value}{span}, n = {inside} against {outside}")
        return lines


@dataclass(frozen=True)
class FairnessSummary:
    """Fairness at the end of a run, by candidate group and by true group; None if no site knows the groups."""

    target: str
    unprivileged: str
    candidate: FairnessBetween | None
    true: FairnessBetween | None

    @classmethod
    def of(
        cls,
        between: Between,
        sites: Sequence[Mapping[str, tuple[float, int]]],
        seed: int,
        one_test: bool = False,
    ) -> FairnessSummary:
        """Combine the rates of all sites."""
        names, (candidate, true) = between.names, (FairnessBetween.of(by, sites, seed, one_test) for by in BY)
        return cls(names.target, names.unprivileged, candidate, true)

    def groupings(self) -> list[tuple[str, FairnessBetween]]:
        """Return the groupings that were measured, each with its figures."""
        both = zip(BY, (self.candidate, self.true), strict=True)
        return [(by, between) for by, between in both if between is not None]

    def in_words(self) -> list[str]:
        """Describe all figures in sentences."""
        return [line for by, between in self.groupings() for line in between.in_words(by)]
