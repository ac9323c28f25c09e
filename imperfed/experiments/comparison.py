"""Several methods on the same splits and seeds in one table, beside the paper's figures where there are any."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from imperfed.core.atomic import write_whole
from imperfed.core.errors import UsageError
from imperfed.data.federate import FederatedData
from imperfed.data.files.declaration import read_declaration
from imperfed.experiments.alone_reference import AloneReference
from imperfed.experiments.comparison_line import Line, line, measured
from imperfed.experiments.comparison_plan import ComparisonPlan
from imperfed.experiments.comparison_table import markdown, notes
from imperfed.experiments.config import Config
from imperfed.experiments.federating_gain import ComparedGain, RowFigures, StoredRun, federating_gain
from imperfed.experiments.parallel import DataCache, Outcome, ParallelRuns
from imperfed.experiments.public_inputs import without_unused_public
from imperfed.experiments.run_data import is_own, load_data
from imperfed.experiments.seed_differences import Interval, SeedDifference, differences, interval_of
from imperfed.experiments.study import paper_figures
from imperfed.experiments.watch import Watch
from imperfed.report.compared_runs import RESULTS, RUNS
from imperfed.report.comparison_page import write_comparison_page
from imperfed.results.folder_names import unused_path

NO_INTERVALS: Mapping[str, Interval] = {}


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
    if not seeds:
        raise UsageError("no seed was named; give at least one, such as 0")
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"a seed is named twice, which would count one run twice; got {', '.join(map(str, seeds))}")
    # Check all settings before any run.
    configs = [without_unused_public([config(method, seed) for method in methods]) for seed in seeds]
    first = configs[0][0]
    refuse_unmeasured(first)
    folder = unused_path(out, "compare", hashlib.sha256(repr(configs).encode()).hexdigest()[:6])
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
    finish(folder, lines, plan.seeds, runs)
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


def write(out: Path, lines: Sequence[Line], seeds: Sequence[int]) -> None:
    """Write `table.md` and `results.json`, again after every seed so that nothing is lost."""
    gain = federating_gain(lines)
    write_whole(out / "table.md", lambda path: path.write_text(markdown(lines, seeds, gain), encoding="utf-8"))
    write_results(out, lines, seeds, gain)


def write_results(
    out: Path,
    lines: Sequence[Line],
    seeds: Sequence[int],
    gain: ComparedGain | None,
    intervals: Mapping[str, Interval] = NO_INTERVALS,
    found: Sequence[SeedDifference] = (),
) -> None:
    """Write `results.json`; `intervals` of the methods' means and the differences between them are known at the end."""
    document = {
        "seeds": list(seeds),
        "figure": measured(lines).over,
        "brought": None if gain is None else gain.plain(),
        "lines": [plain(one, intervals.get(one.method)) for one in lines],
        "differences": [one.plain() for one in found],
        "notes": notes(lines, seeds),
    }
    write_whole(out / RESULTS, lambda path: path.write_text(json.dumps(document, indent=2), encoding="utf-8"))


def plain(line: Line, interval: Interval | None) -> dict[str, Any]:
    """Return a line as plain values."""
    return {
        "method": line.method,
        "values": line.values,
        "seeds": line.seeds,
        "interval": None if interval is None else asdict(interval),
        "labels": line.labels,
        "paper": line.paper,
        "global": line.common,
        "targets": [asdict(target) for target in line.targets],
        "diverged": line.diverged,
        **({} if line.values or line.diverged else {"not_measured": line.why_blank}),
    }


def finish(out: Path, lines: Sequence[Line], seeds: Sequence[int], runs: Sequence[Sequence[StoredRun]]) -> None:
    """Write what needs all runs: whether methods differ, which folder is whose, and the page."""
    intervals = {one.method: found for one in lines if (found := interval_of(one)) is not None}
    write_results(out, lines, seeds, federating_gain(lines), intervals, differences(lines))
    names = [
        {"method": one.method, "seed": seed, "folder": path.name}
        for seed, of_seed in zip(seeds, runs, strict=True)
        for one, run in zip(lines, of_seed, strict=False)  # what sites reach alone comes last and has no run
        if (path := run.path()) is not None
    ]
    write_whole(out / RUNS, lambda path: path.write_text(json.dumps(names, indent=2), encoding="utf-8"))
    write_comparison_page(out)
