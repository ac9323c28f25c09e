"""The files of a comparison as its page needs them: the results, and the folders of its runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from imperfed.core.errors import UsageError
from imperfed.report.run_files import Course, by_metric
from imperfed.results.damaged_files import parse_file
from imperfed.results.folder import RunFolder
from imperfed.results.summary import Summary

RESULTS, RUNS = "results.json", "runs.json"
"""The figures, and which run's folder is which."""


@dataclass(frozen=True)
class ComparedRun:
    """One run of a method, with one seed."""

    seed: int
    folder: RunFolder

    @cached_property
    def summary(self) -> Summary | None:
        """The summary; None if the run diverged."""
        return self.folder.summary()

    @cached_property
    def history(self) -> Mapping[str, Course]:
        """The figures by metric, round and site."""
        return by_metric(self.folder.records())

    def mean_by_round(self, metric: str) -> dict[int, float]:
        """Return the mean over sites after every round in which a metric was measured."""
        return {r: fmean(v for v, _ in sites.values()) for r, sites in self.history.get(metric, {}).items()}

    def total(self, metric: str) -> float:
        """Return the sum of a metric over rounds."""
        return sum(value for sites in self.history.get(metric, {}).values() for value, _ in sites.values())


@dataclass(frozen=True)
class ComparedMethod:
    """One method: its line in `results.json`, and its runs that have ended."""

    title: str
    line: Mapping[str, Any]
    runs: Sequence[ComparedRun]

    @property
    def mean(self) -> float | None:
        """The mean of its figure over the seeds; None if no run was measured."""
        return fmean(self.line["values"]) if self.line["values"] else None

    @cached_property
    def summaries(self) -> list[Summary]:
        """The summaries of its runs."""
        return [run.summary for run in self.runs if run.summary is not None]

    def over_seeds(self, figures: Callable[[Summary], Mapping[str, float | None]]) -> dict[str, float]:
        """Return the means over the seeds of figures with names, such as those of sites or classes."""
        found: dict[str, list[float]] = {}
        for summary in self.summaries:
            for name, value in figures(summary).items():
                if value is not None:
                    found.setdefault(name, []).append(value)
        return {name: fmean(values) for name, values in found.items()}

    def course(self, metric: str) -> dict[int, float]:
        """Return the mean of a metric over sites and seeds, for the rounds that every run has."""
        curves = [curve for run in self.runs if run.summary and (curve := run.mean_by_round(metric))]
        common = set.intersection(*map(set, curves)) if curves else set()
        return {r: fmean(curve[r] for curve in curves) for r in sorted(common)}


@dataclass(frozen=True)
class ComparedRuns:
    """A whole comparison, the best method first."""

    path: Path
    results: Mapping[str, Any]
    methods: Sequence[ComparedMethod]

    @classmethod
    def read(cls, path: Path) -> ComparedRuns:
        """Read the folder of a comparison."""
        if not (path / RESULTS).is_file() or not (path / RUNS).is_file():
            raise UsageError(f"{path}: not the folder of a comparison that has ended: it has no {RUNS}")
        results = parse_file(path / RESULTS, json.loads, "compare again")
        runs = parse_file(path / RUNS, json.loads, "compare again")
        methods = [
            ComparedMethod(
                line["method"],
                line,
                [
                    ComparedRun(run["seed"], RunFolder(path / run["folder"]))
                    for run in runs
                    if run["method"] == line["method"]
                ],
            )
            for line in results["lines"]
            if line["values"] or line["diverged"]
        ]
        return cls(path, results, sorted(methods, key=lambda one: -1.0 if one.mean is None else one.mean, reverse=True))

    @property
    def summary(self) -> Summary | None:
        """Any summary: what they have in common."""
        return next((summary for method in self.methods for summary in method.summaries), None)
