"""Several methods on the same splits and seeds in one table, beside the paper's figures where there are any."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from imperfed.core.atomic import write_whole
from imperfed.core.errors import UsageError
from imperfed.data.federate import FederatedData
from imperfed.data.files.declaration import read_declaration
from imperfed.evaluation.time_to_target import TargetReached
from imperfed.experiments.auto.reference import alone_models
from imperfed.experiments.blank_cells import reasons, with_figures
from imperfed.experiments.comparison_plan import ComparisonPlan
from imperfed.experiments.config import Config
from imperfed.experiments.experiment import Watch, is_own, load_data
from imperfed.experiments.federating_gain import ALONE, ComparedGain, RowFigures, StoredRun, federating_gain
from imperfed.experiments.parallel import DataCache, Outcome, ParallelRuns
from imperfed.experiments.public_inputs import without_unused_public
from imperfed.experiments.study import paper_figures
from imperfed.results.folder import free
from imperfed.results.summary import FilledLabels, Summary

SITES = "mean over sites"
NOT_MEASURED: Mapping[int, Callable[[], RowFigures]] = {}
ABOUT_ALONE = "best of logistic, forest, boosting and a network at each site, chosen on held-out rows"


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

    @property
    def mean(self) -> float:
        """The mean over the seeds; NaN where no run finished."""
        return statistics.fmean(self.values) if self.values else math.nan

    @property
    def spread(self) -> float:
        """The sample standard deviation over the seeds; 0 for one seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


def compare(
    methods: Sequence[str],
    seeds: Sequence[int],
    config: Callable[[str, int], Config],
    out: Path,
    watch: Callable[[], Watch],
    paper: Mapping[str, float] | None = None,
    processes: ParallelRuns | None = None,
    alone: bool = False,
    load: Callable[[Config], FederatedData] = load_data,
) -> tuple[Path, list[Line]]:
    """Run every method with every seed (which is also the seed of the split) in a new folder below `out`.

    Without `processes`, the seeds run one after the other in this process. `alone`: whether models that sites fit alone
    are measured beside the methods; `load`: loads the data on which models are measured.
    """
    if not methods:
        raise UsageError("no method was named; give comma-separated names")
    if twice := [method for method, times in Counter(methods).items() if times > 1]:
        raise UsageError(f"named more than once: {', '.join(twice)}")
    # Check all settings before any run.
    configs = [without_unused_public([config(method, seed) for method in methods]) for seed in seeds]
    first = configs[0][0]
    refuse_unmeasured(first)
    folder = free(out, "compare", hashlib.sha256(repr(configs).encode()).hexdigest()[:6])
    paper = paper_figures(first.run.data, first.labels.kind) if paper is None else paper
    plan = ComparisonPlan.of(methods, seeds, configs, paper, alone)
    return folder, carry_out(plan, configs, folder, watch, processes or ParallelRuns(1), load)


def continue_comparison(
    folder: Path, watch: Callable[[], Watch], processes: ParallelRuns
) -> tuple[list[Line], list[int]]:
    """Finish a comparison that was interrupted: runs that have ended are kept, one that has not goes on where it was.

    Returns its lines and its seeds.
    """
    plan = ComparisonPlan.read(folder)
    lines = carry_out(plan, plan.configs(), folder, watch, processes)
    return lines, list(plan.seeds)


def carry_out(
    plan: ComparisonPlan,
    configs: Sequence[Sequence[Config]],
    folder: Path,
    watch: Callable[[], Watch],
    processes: ParallelRuns,
    load: Callable[[Config], FederatedData] = load_data,
) -> list[Line]:
    """Make the runs of a plan that the folder does not have yet, and write the table after every seed."""
    ended: list[Sequence[Outcome]] = []
    lines: list[Line] = []
    reference, data = AloneReference(), DataCache(load)
    runs = [[StoredRun(config, folder, data) for config in of_seed] for of_seed in configs]
    with plan.noted(folder):
        for outcomes in processes.outcomes(configs, folder, watch):
            ended.append(outcomes)
            lines = [
                line(method, [one[m] for one in ended], plan.paper, _ended(plan.seeds, ended, runs, m))
                for m, method in enumerate(plan.methods)
            ]
            if plan.alone:
                reference.add(configs[len(ended) - 1][0], data.data)
                lines += reference.lines()
            write(folder, lines, plan.seeds[: len(ended)])
    return lines


def _ended(
    seeds: Sequence[int], ended: Sequence[Sequence[Outcome]], runs: Sequence[Sequence[StoredRun]], method: int
) -> dict[int, Callable[[], RowFigures]]:
    """Return how the models of a method do on their test rows, for the seeds of which its run has not diverged."""
    of_seed = zip(seeds, ended, runs, strict=False)  # seeds that are still to come are left out
    return {seed: stored[method].figures for seed, outcomes, stored in of_seed if not isinstance(outcomes[method], str)}


def refuse_unmeasured(config: Config) -> None:
    """Refuse a comparison without test rows; say whether this is due to the settings or the files."""
    declaration = read_declaration(config.run.data) if is_own(config.run.data) else None
    if declaration is not None and not declaration.measured:
        raise UsageError(
            f"compare measures methods on test rows, and the files of {declaration.name} hold no truth to measure on; "
            f"declare test files or truth in {declaration.file}"
        )
    if not config.split.test and (declaration is None or not declaration.test):
        raise UsageError("compare measures methods on test rows; set split.test above 0")


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
    )


@dataclass
class AloneReference:
    """What sites reach alone, seed by seed."""

    means: list[float] = field(default_factory=list)
    by_row: dict[int, Callable[[], RowFigures]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    given: str = ""
    left_out: str = ""
    """Why nothing could be measured."""

    def add(self, config: Config, load: Callable[[Config], FederatedData]) -> None:
        """Measure models that sites fit alone on the data of one seed, where that can be done."""
        began, data = time.perf_counter(), load(config)
        fitted = alone_models(config, data)
        if isinstance(fitted, str):
            self.left_out = fitted
            return
        figures = RowFigures.of(*fitted)
        known = [value for n, value_of in figures.sites if math.isfinite(value := value_of(torch.arange(n)))]
        if known:
            self.means.append(statistics.fmean(known))
            self.by_row[config.run.seed] = lambda: figures
        self.seconds.append(time.perf_counter() - began)
        self.given = data.federation.labels.kind

    def lines(self) -> list[Line]:
        """Return the line of a table, which says why there are no figures if nothing could be measured."""
        if not self.means:
            return [Line(ALONE, (), (), math.nan, None, why_blank=self.left_out or "no figure could be computed")]
        seconds = statistics.fmean(self.seconds)
        return [Line(ALONE, tuple(self.means), (), seconds, None, given=self.given, by_row=dict(self.by_row))]


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


def markdown(lines: Sequence[Line], seeds: Sequence[int], gain: ComparedGain | None = None) -> str:
    """Return the table in Markdown, as on a results page; `gain`: what it begins with."""
    every, lines = lines, with_figures(lines)
    top = best(lines)
    figures = [f"**{spread(one.values)}**" if one.mean == top else spread(one.values) for one in lines]
    columns = {
        "method": [one.method for one in lines],
        f"{measured(lines).over}, %": figures,
    }
    if any(one.common for one in lines) and SITES in measured(lines).over:
        columns["global model, %"] = [spread(one.common) for one in lines]
    columns["paper, %"] = [f"{one.paper:.2f}" if one.paper is not None else "" for one in lines]
    columns[labels_title(lines)] = [f"{100 * statistics.fmean(x.labels):.2f}" if x.labels else "" for x in lines]
    columns |= further(lines)
    columns["s per run"] = [f"{one.seconds:.1f}" if one.values else "" for one in lines]
    table = [columns, ["---"] * len(columns), *zip(*columns.values(), strict=True)]
    rows = [f"| {' | '.join(cells)} |" for cells in table]
    first = [] if gain is None else [f"{gain.sentence()}\n"]
    about = f"{ALONE}: {ABOUT_ALONE}." if any(one.method == ALONE for one in lines) else ""
    missing = (f"{sentence}." for sentence in reasons(every))
    notes = " ".join(note for note in (caption(seeds), unlike(lines), about, *missing) if note)
    return "\n".join([*first, *rows, f"\n{notes}\n"])


def caption(seeds: Sequence[int]) -> str:
    """Return the caption of a table: its seeds and what ± means."""
    if len(seeds) == 1:
        return f"Seed {seeds[0]}."
    named = ", ".join(map(str, seeds))
    return f"Seeds {named}, each with its own split; ± is the sample standard deviation over them."


def write(out: Path, lines: Sequence[Line], seeds: Sequence[int]) -> None:
    """Write `table.md` and `results.json`, again after every seed so that nothing is lost."""
    results = [
        {
            "method": one.method,
            "values": one.values,
            "labels": one.labels,
            "paper": one.paper,
            "global": one.common,
            "targets": [asdict(target) for target in one.targets],
            "diverged": one.diverged,
            **({} if one.values or one.diverged else {"not_measured": one.why_blank}),
        }
        for one in lines
    ]
    gain = federating_gain(lines)
    document = {"seeds": list(seeds), "brought": None if gain is None else gain.plain(), "lines": results}
    write_whole(out / "results.json", lambda path: path.write_text(json.dumps(document, indent=2)))
    write_whole(out / "table.md", lambda path: path.write_text(markdown(lines, seeds, gain), encoding="utf-8"))
