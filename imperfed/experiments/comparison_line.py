"""A method's line in a comparison: its figures over the seeds, and what they measure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from imperfed.evaluation.time_to_target import TargetReached
from imperfed.experiments.federating_gain import RowFigures
from imperfed.experiments.parallel import Outcome
from imperfed.results.label_summary import FilledLabels
from imperfed.results.summary import Summary

SITES = "mean over sites"
NOT_MEASURED: Mapping[int, Callable[[], RowFigures]] = {}


@dataclass(frozen=True)
class Line:
    """A method's figures over the seeds, as fractions."""

    method: str
    values: tuple[float, ...]
    labels: tuple[float, ...]
    seconds: float
    paper: float | None
    common: tuple[float, ...] = ()
    """The global model's figures on the common test set."""
    targets: tuple[TargetReached, ...] = ()
    """When each run reached the target, where one was set."""
    diverged: tuple[str, ...] = ()
    """The messages of the runs that diverged, which are left out of all figures."""
    filled: bool = False
    """Whether `labels` are the AUROC of missing labels filled in rather than the share of labels resolved."""
    over: str = SITES
    """What the figures measure: the metric, and over what."""
    metric: str = ""
    """The name of the figure."""
    given: str = ""
    """The kind of labels that the method learned from."""
    by_row: Mapping[int, Callable[[], RowFigures]] = field(default_factory=dict, repr=False, compare=False)
    """How the models of each seed do on any of their test rows."""
    why_blank: str = ""
    """Why there are no figures, if there are none."""
    seeds: tuple[int, ...] = ()
    """The seed of each of `values`."""

    @property
    def mean(self) -> float:
        """The mean over the seeds; NaN where no run finished."""
        return statistics.fmean(self.values) if self.values else math.nan

    @property
    def spread(self) -> float:
        """The sample standard deviation over the seeds; 0 for one seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


def line(
    method: str,
    outcomes: Sequence[Outcome],
    paper: Mapping[str, float],
    by_row: Mapping[int, Callable[[], RowFigures]] = NOT_MEASURED,
) -> Line:
    """Return a method's line from the outcomes of its runs; `by_row`: of those that have ended, by seed."""
    summaries = [outcome for outcome in outcomes if not isinstance(outcome, str)]
    diverged = [outcome for outcome in outcomes if isinstance(outcome, str)]
    labels = [s.labels for s in summaries if s.labels is not None]
    seconds = [s.seconds for s in summaries if s.seconds is not None]
    common = [s.common[s.metric].value for s in summaries if s.common]
    return Line(
        method,
        tuple(s.headline for s in summaries if s.headline is not None),
        tuple(one.leading for one in labels if one.leading is not None),
        statistics.fmean(seconds) if seconds else math.nan,
        paper.get(method),
        tuple(value for value in common if value is not None),
        tuple(s.target for s in summaries if s.target is not None),
        tuple(diverged),
        any(isinstance(one, FilledLabels) for one in labels),
        over(summaries),
        next((s.metric for s in summaries), ""),
        next((s.facts.labels for s in summaries), ""),
        by_row,
        "test rows are common to all sites, and it has no one model for them all",
        tuple(s.seed for s in summaries if s.headline is not None),
    )


def over(summaries: Sequence[Summary]) -> str:
    """Return what a run's leading figure measures."""
    if not summaries:
        return SITES
    metric = summaries[0].metric
    return f"{metric}, {SITES}" if summaries[0].personal.n else f"{metric} on the common test set"


def measured(lines: Sequence[Line]) -> Line:
    """Return a line whose runs finished, where there is one: it says what all of them measure."""
    return next((one for one in lines if one.metric), lines[0])


def unlike(lines: Sequence[Line]) -> str:
    """Return which methods learned from which labels, where they differ: those that see the truth are not rivals."""
    kinds = dict.fromkeys(line.given for line in lines if line.given)
    groups = [f"{kind} ({', '.join(x.method for x in lines if x.given == kind)})" for kind in kinds]
    return f"Not all learned from the same labels: {'; '.join(groups)}." if len(kinds) > 1 else ""


def labels_title(lines: Sequence[Line]) -> str:
    """Return the title of the figures of the inferred labels."""
    return "labels filled in, AUROC, %" if any(line.filled for line in lines) else "labels resolved, %"


def best(lines: Sequence[Line]) -> float:
    """Return the highest mean over sites among the methods that finished."""
    return max((line.mean for line in lines if line.values), default=math.nan)


def spread(values: Sequence[float]) -> str:
    """Return mean and sample standard deviation in per cent; the mean alone for one value; empty for none."""
    if not values:
        return ""
    mean = f"{100 * statistics.fmean(values):.2f}"
    return f"{mean} ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else mean


def further(lines: Sequence[Line]) -> dict[str, list[str]]:
    """Return the columns that only some comparisons have: time to the target, and runs that diverged."""
    columns: dict[str, list[str]] = {}
    if targets := [target for line in lines for target in line.targets]:
        goal = f"to {100 * targets[0].value:g} %"
        common_figure = min(target.of for target in targets)  # the global model, where any line has one
        columns[f"rounds {goal}"] = [_mean_of([t.round for t in x.targets], x.targets, common_figure) for x in lines]
        columns[f"s {goal}"] = [_mean_of([t.seconds for t in x.targets], x.targets, common_figure) for x in lines]
    if any(line.diverged for line in lines):
        counts = [(len(line.diverged), len(line.diverged) + len(line.values)) for line in lines]
        columns["diverged"] = [f"{bad} of {runs}" if bad else "" for bad, runs in counts]
    return columns


def _mean_of(values: Sequence[float | None], targets: Sequence[TargetReached], common_figure: str) -> str:
    """Return the mean over the runs that reached the target, how many did if not all, and any unusual figure used."""
    reached = [value for value in values if value is not None]
    if not reached:
        return "not reached" if targets else ""
    some = f" ({len(reached)} of {len(targets)})" if len(reached) < len(targets) else ""
    other = "" if targets[0].of == common_figure else f" ({targets[0].of})"
    return f"{statistics.fmean(reached):.1f}{some}{other}"
