"""The folders of a comparison and of a sweep made by hand, with names that have markup in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec

from imperfed.experiments.comparison import write_results
from imperfed.experiments.comparison_line import Line
from imperfed.experiments.config import Config
from imperfed.experiments.resolving import resolve
from imperfed.experiments.seed_differences import differences, interval_of
from imperfed.experiments.sweep.sweep_grid import holding_out
from imperfed.experiments.sweep.sweep_plan import SweepPlan
from imperfed.experiments.sweep.sweep_run import TriedCell
from imperfed.experiments.sweep.sweep_run import write_results as write_sweep_results
from imperfed.experiments.sweep.sweep_trial import SweepScore
from imperfed.report.comparison_page import write_comparison_page
from imperfed.results.summary import Summary
from tests.support import made_run

VALUES: Mapping[str, tuple[float, ...]] = {
    "pfedpll": (0.60, 0.62, 0.64),
    "fedavg+lcp mu=<i>0.5</i>": (0.50, 0.53, 0.53),
    "cc": (0.59, 0.64, 0.63),
}


def compared(out: Path) -> Path:
    """A comparison of three methods over three seeds, with its page; return its folder."""
    lines = [
        Line(name, values, (0.7,) * 3, 1.5, None, over="accuracy, mean over sites", metric="accuracy", seeds=(0, 1, 2))
        for name, values in VALUES.items()
    ]
    intervals = {one.method: found for one in lines if (found := interval_of(one))}
    write_results(out, lines, (0, 1, 2), None, intervals, differences(lines))
    runs = []
    for name, values in VALUES.items():
        for seed, value in enumerate(values):
            folder = made_run.make(out, lambda s, value=value: s["personal"].update(mean=value))  # type: ignore[misc]
            runs.append({"method": name, "seed": seed, "folder": folder.path.name})
    (out / "runs.json").write_text(json.dumps(runs))
    write_comparison_page(out)
    return out


def swept(out: Path) -> Path:
    """A sweep of two settings over two seeds, in which one trial failed, with its page; return its folder."""
    grid = {"lr": ("0.01", "0.1"), "batch": ("16", "<b>32</b>")}

    def config(seed: int) -> Config:
        return holding_out(resolve(words={"method": "cc", "data": "digits", "seed": seed, "data_seed": seed}))

    configs = [[config(0), config(1)]] * 4
    plan = SweepPlan.of("cc", grid, (0, 1), configs)
    tried = []
    for number, cell in enumerate(plan.cells):
        score = None if number == 3 else 0.6 + 0.1 * number
        failure = "" if score else "round 1: the run has diverged"
        trial = SweepScore(score, 2, 3, 1.5, 4500, ((1, 0.5), (2, score or 0.4), (3, 0.55)), failure)
        tried.append(TriedCell(cell, dict.fromkeys((0, 1), trial)))
    summary = Summary.from_json(json.dumps(made_run.summary()))
    outcomes = [msgspec.structs.replace(summary, seed=seed) for seed in (0, 1)]
    plan.write(out)
    write_sweep_results(plan, out, tried, 2, configs[2], outcomes)
    return out
