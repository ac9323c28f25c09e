"""What federating brought in a comparison: the best federated method against the best that sites do alone.

Both are measured on the same test rows, from the models in the folders of the runs, and the interval of the difference
is a paired bootstrap over these rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from torch import Tensor

from imperfed.algorithms import catalogue
from imperfed.core.algorithm import Algorithm
from imperfed.core.threads import one_thread
from imperfed.evaluation.evaluator import Evaluator, Predictor
from imperfed.evaluation.paired import Difference, Figure, paired_difference
from imperfed.experiments.auto.combinations import keeps_everything
from imperfed.experiments.config import Config
from imperfed.experiments.parallel import DataCache, run_of
from imperfed.experiments.stored_run import stored_models
from imperfed.report.words import many

if TYPE_CHECKING:
    from imperfed.experiments.comparison_line import Line

ALONE = "alone"
NAME_ENDS = re.compile(r"[ (+]")
"""What follows the name of a method in its title: settings or an objective."""


@dataclass(frozen=True)
class RowFigures:
    """How the models of one run do on any of their sites' test rows."""

    sites: tuple[tuple[int, Figure], ...]
    """By site: the number of test rows, and the leading figure over any of them."""
    one_test: bool
    """Whether all sites have the same test rows."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of test rows of every site."""
        return tuple(n for n, _ in self.sites)

    @classmethod
    def of(cls, evaluator: Evaluator, models: Sequence[Predictor]) -> RowFigures:
        """Return the figures of the sites' models; of none where sites have no test rows of their own."""
        with one_thread():
            sites = evaluator.row_figures(models) if evaluator.sites else ()
        return cls(tuple(sites), evaluator.one_test)


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A run of a comparison that has ended, whose models are read when they are asked for."""

    config: Config
    folder: Path
    """Of the comparison."""
    data: DataCache

    def path(self) -> Path | None:
        """Return the folder of the run; None if there is none."""
        run = run_of(self.config, self.folder)
        return None if run is None else run.path

    def figures(self) -> RowFigures:
        """Return how its models do on any test rows; they are read once."""
        return self._figures

    @cached_property
    def _figures(self) -> RowFigures:
        run = run_of(self.config, self.folder)
        assert run is not None  # it has ended
        evaluator, federation, predictor = stored_models(run, self.config, self.data.data(self.config))
        return RowFigures.of(evaluator, [predictor(site) for site in federation.sites] if evaluator.sites else [])


@dataclass(frozen=True)
class ComparedGain:
    """What the best federated method brought over the best that sites do alone."""

    federated: Line
    alone: Line
    difference: Difference
    seeds: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves no doubt about the sign."""
        return not self.difference.low <= 0 <= self.difference.high

    def sentence(self) -> str:
        """Return it in words."""
        ours, theirs, found = self.federated, self.alone, self.difference
        over = f" over {self.seeds} seeds" if self.seeds > 1 else ""
        interval = (
            f"95 % interval {100 * found.low:+.1f} to {100 * found.high:+.1f} points, n = {many(found.n, 'test row')}"
        )
        against = (
            f"{ours.method} {100 * ours.mean:.1f} % against {100 * theirs.mean:.1f} % ({theirs.method}), {ours.over}"
        )
        if not self.is_clear:
            return (
                f"What federating brings over the best that sites do alone is not clear: {against}; {interval}{over}."
            )
        gain = found.first - found.second
        points = f"{100 * abs(gain):.1f} points"
        verdict = f"brought {points} over" if gain > 0 else f"cost {points} compared with"
        return f"Federating {verdict} the best that sites do alone: {against}; {interval}{over}."

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        about = {"federated": self.federated.method, "alone": self.alone.method, "is_clear": self.is_clear}
        return {"sentence": self.sentence(), **about, **asdict(self.difference)}


def federating_gain(lines: Sequence[Line]) -> ComparedGain | None:
    """Return what the best federated method brought; None if it or what sites do alone is missing."""
    rows = [line for line in lines if line.values and line.by_row]
    own = [line for line in rows if line.method == ALONE or at_sites_alone(line.method)]
    federated = [line for line in rows if line.method != ALONE and may_leave(line.method)]
    if not own or not federated:
        return None
    ours, theirs = max(federated, key=lambda line: line.mean), max(own, key=lambda line: line.mean)
    seeds = [seed for seed in ours.by_row if seed in theirs.by_row]
    runs = [(ours.by_row[seed](), theirs.by_row[seed]()) for seed in seeds]
    pairs = [
        [(n, one, other) for (n, one), (_, other) in zip(first.sites, second.sites, strict=True)]
        for first, second in runs
        if first.sites and first.sizes == second.sizes  # settings of its own may give a method other rows
    ]
    difference = over_rows_of(pairs, any(first.one_test for first, _ in runs)) if pairs else None
    return None if difference is None else ComparedGain(ours, theirs, difference, len(pairs))


def brought(lines: Sequence[Line]) -> str:
    """Return in words what federating brought; empty if there is nothing to compare."""
    gain = federating_gain(lines)
    return "" if gain is None else gain.sentence()


def over_rows_of(runs: Sequence[Sequence[tuple[int, Figure, Figure]]], one_test: bool) -> Difference | None:
    """Return the difference of the means over sites and seeds, with its interval over test rows.

    Rows that several models are tested on are drawn once for all of them: those of a site by all seeds, and those of
    all sites if they have one test. Where the sizes of test sets depend on the seed, each seed draws its own.
    """
    alike = len({tuple(n for n, _, _ in sites) for sites in runs}) == 1
    drawn: dict[tuple[int, int], list[tuple[int, Figure, Figure]]] = {}
    for seed, sites in enumerate(runs):
        for site, pair in enumerate(sites):
            drawn.setdefault((0 if alike else seed, 0 if one_test else site), []).append(pair)
    groups = [tuple(zip(*pairs, strict=True)) for pairs in drawn.values()]
    return paired_difference([(sizes[0], _mean(ours), _mean(theirs)) for sizes, ours, theirs in groups], seed=0)


def _mean(figures: Sequence[Figure]) -> Figure:
    def mean(rows: Tensor) -> float:
        return fmean(figure(rows) for figure in figures)

    return mean


def at_sites_alone(method: str) -> bool:
    """Return whether a method of a comparison sends nothing of its model."""
    known = catalogue().get(NAME_ENDS.split(method)[0])
    return known is not None and issubclass(known, Algorithm) and keeps_everything(known())


def may_leave(method: str) -> bool:
    """Return whether a method of a comparison is federated: neither alone nor trained on pooled rows."""
    known = catalogue().get(NAME_ENDS.split(method)[0])
    pooled = known is not None and issubclass(known, Algorithm) and known.pools_data
    return not pooled and not at_sites_alone(method)
