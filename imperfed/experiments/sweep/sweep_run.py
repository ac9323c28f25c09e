"""A sweep from its grid to its page: trials, the choice by rows held out, and the chosen settings on test rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from imperfed.core.atomic import write_whole
from imperfed.core.errors import DataError, DiskFullError
from imperfed.engine.backends.distributed.group import RankLostError
from imperfed.experiments.comparison_line import line
from imperfed.experiments.config import Config
from imperfed.experiments.parallel import Outcome, ParallelRuns, run_of
from imperfed.experiments.run_data import is_own
from imperfed.experiments.seed_differences import SeedDifference, corrected, interval_of, paired
from imperfed.experiments.sweep.sweep_grid import Cell, cells_of, configs_of, named
from imperfed.experiments.sweep.sweep_plan import SweepPlan
from imperfed.experiments.sweep.sweep_trial import SweepScore, score_of, trials_of
from imperfed.experiments.watch import Interrupted, Watch
from imperfed.report.compared_runs import RESULTS, RUNS
from imperfed.report.sweep_page import write_sweep_page
from imperfed.results.folder_names import unused_path

TRIALS = "trials"


@dataclass(frozen=True)
class TriedCell:
    """One combination, and how its trials did, by seed."""

    cell: Cell
    scores: Mapping[int, SweepScore]

    @property
    def known(self) -> dict[int, float]:
        """The scores of the trials that have one."""
        return {seed: one.score for seed, one in self.scores.items() if one.score is not None}

    @property
    def mean(self) -> float | None:
        """The mean over all seeds; None if one of them failed."""
        return fmean(self.known.values()) if len(self.known) == len(self.scores) else None


def sweep(
    method: str,
    grid: Mapping[str, Sequence[str]],
    seeds: Sequence[int],
    make: Callable[[Cell, int], Config],
    out: Path,
    watch: Callable[[], Watch],
    processes: ParallelRuns,
) -> tuple[Path, dict[str, Any]]:
    """Try every combination with every seed in a new folder below `out`; return the folder and the results."""
    configs = configs_of(cells_of(grid), seeds, make)
    plan = SweepPlan.of(method, grid, seeds, configs)
    folder = unused_path(out, "sweep", hashlib.sha256(repr(plan).encode()).hexdigest()[:6])
    with plan.noted(folder):
        return folder, carry_out_sweep(plan, folder, watch, processes)


def carry_out_sweep(
    plan: SweepPlan, folder: Path, watch: Callable[[], Watch], processes: ParallelRuns
) -> dict[str, Any]:
    """Make the trials that are missing, choose, measure what was chosen, and write results and page."""
    configs = plan.configs()
    try:
        for _ in processes.each(trials_of, groups(configs, processes.jobs), folder / TRIALS, watch):
            pass
        tried = [
            TriedCell(cell, {c.run.seed: score for c in of_cell if (score := score_of(c, folder / TRIALS))})
            for cell, of_cell in zip(plan.cells, configs, strict=True)
        ]
        best = chosen(tried)
        outcomes = [one for (one,) in processes.outcomes([[c] for c in configs[best]], folder, watch)]
    except (Interrupted, RankLostError, DiskFullError) as error:
        first, _, _ = str(error).partition("; ")
        raise type(error)(f"{first}; continue with: imperfed resume {folder}") from error
    return write_results(plan, folder, tried, best, configs[best], outcomes)


def groups(configs: Sequence[Sequence[Config]], jobs: int) -> list[list[Config]]:
    """Return the trials in groups for so many processes, those of one seed together: they have the same data."""
    by_seed = [list(of_seed) for of_seed in zip(*configs, strict=True)]
    parts = max(1, -(-jobs // len(by_seed)))
    return [part for of_seed in by_seed for k in range(parts) if (part := of_seed[k::parts])]


def chosen(tried: Sequence[TriedCell]) -> int:
    """Return the number of the combination with the highest mean score, the first of equal ones."""
    known = {number: one.mean for number, one in enumerate(tried) if one.mean is not None}
    if not known:
        why = next((score.failure for one in tried for score in one.scores.values() if score.failure), "")
        raise DataError(
            f"no combination has a score with every seed: {why or 'the rows held out say nothing about any model'}"
        )
    return max(known, key=lambda number: known[number])


def write_results(
    plan: SweepPlan,
    folder: Path,
    tried: Sequence[TriedCell],
    best: int,
    configs: Sequence[Config],
    outcomes: Sequence[Outcome],
) -> dict[str, Any]:
    """Write `results.json`, the folders of the chosen runs, and the page; return the results."""
    measured = line(plan.method, outcomes, {})
    interval = interval_of(measured)
    found = {one.method: one for one in differences_from(tried[best], tried)}
    data = configs[0].run.data
    results = {
        "method": plan.method,
        "data": Path(data).name if is_own(data) else data,
        "grid": dict(plan.grid),
        "seeds": list(plan.seeds),
        "held_out": configs[0].split.validation,
        "figure": next((s.validation.figure for s in outcomes if not isinstance(s, str) and s.validation), ""),
        "chosen": {
            "settings": dict(tried[best].cell),
            "figure": measured.over,
            "values": measured.values,
            "seeds": measured.seeds,
            "interval": None if interval is None else asdict(interval),
            "diverged": measured.diverged,
        },
        "cells": [plain(one, found.get(named(one.cell))) for one in tried],
    }
    runs = [
        {"method": plan.method, "seed": config.run.seed, "folder": run.path.name}
        for config in configs
        if (run := run_of(config, folder)) is not None
    ]
    write_json(folder / RESULTS, results)
    write_json(folder / RUNS, runs)
    write_sweep_page(folder)
    return results


def write_json(path: Path, document: Any) -> None:
    """Write plain values as a file, whole or not at all."""
    write_whole(path, lambda partly: partly.write_text(json.dumps(document, indent=2), encoding="utf-8"))


def differences_from(best: TriedCell, tried: Sequence[TriedCell]) -> list[SeedDifference]:
    """Return how far every other combination is from the chosen one, on rows held out."""
    others = [one for one in tried if one is not best]
    pairs = (paired(named(one.cell), named(best.cell), one.known, best.known) for one in others)
    return corrected([pair for pair in pairs if pair is not None])


def plain(one: TriedCell, difference: SeedDifference | None) -> dict[str, Any]:
    """Return a combination as plain values."""
    return {
        "settings": dict(one.cell),
        "mean": one.mean,
        "trials": [{"seed": seed, **asdict(score)} for seed, score in one.scores.items()],
        "difference": None if difference is None else difference.plain(),
    }
