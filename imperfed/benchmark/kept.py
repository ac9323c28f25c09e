"""What is known of a kind, and the tables of the results that come with imperfed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from imperfed.benchmark.benchmark_tables import tables
from imperfed.benchmark.kinds import BenchmarkKind, BenchmarkSet, results_file
from imperfed.benchmark.members import members
from imperfed.benchmark.records import BenchmarkRecord, BenchmarkRecords, digest
from imperfed.experiments.tuning import Tuning

KnownRuns = dict[str, dict[str, list[BenchmarkRecord]]]
"""By dataset and method."""


def known_runs(
    kind: BenchmarkKind,
    datasets: Sequence[BenchmarkSet],
    records: BenchmarkRecords,
    tuning: Tuning,
    words: Mapping[str, Any] | None = None,
    further: Mapping[tuple[str, str], str] | None = None,
) -> KnownRuns:
    """Return the runs of the kind's methods that were made with these settings and this budget.

    `further`: what runs of other methods were made with, by dataset and method.
    """
    found: KnownRuns = {}
    for dataset in datasets:
        made = dict.fromkeys(members(kind, dataset), digest(kind, dataset, tuning, words))
        made |= {method: how for (name, method), how in (further or {}).items() if name == dataset.name}
        for method, how in made.items():
            if runs := records.runs(dataset.name, method, how):
                found.setdefault(dataset.name, {})[method] = runs
    return found


def page_part(kind: BenchmarkKind) -> str:
    """Return the part of a page about a kind: the tables of imperfed's own results, and which datasets are missing."""
    runs = known_runs(kind, kind.datasets, BenchmarkRecords.read(results_file(kind.name)), Tuning())
    parts = [f"Every method had {Tuning().trials} trials on each dataset. {kind.about}".strip()]
    parts += [table.markdown() for table in tables(kind, runs)]
    out = [f"`{name}`: {why}" for name, why in kind.left_out.items()]
    missing = [f"`{one.name}` ({one.about}){_why(one)}" for one in kind.datasets if one.name not in runs]
    parts += [f"Not run: {'; '.join(missing)}."] if missing else []
    return "\n\n".join(parts + ([f"Of the catalogue, not compared as they are: {'; '.join(out)}."] if out else []))


def _why(dataset: BenchmarkSet) -> str:
    hours = f", which takes hours on a CPU: {dataset.hours}" if dataset.hours else ""
    return f", which needs a GPU: {dataset.gpu}" if dataset.gpu else hours
