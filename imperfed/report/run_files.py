"""The files of a run as the report needs them, in the same form whether or not the run has finished."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from imperfed.core.errors import DataError
from imperfed.experiments.config import Config
from imperfed.results.damaged_files import parse_file
from imperfed.results.folder import Record, RunFolder
from imperfed.results.label_summary import ResolvedLabels
from imperfed.results.leak_summary import LeakSummary
from imperfed.results.many_sites import MANY
from imperfed.results.metrics import sent
from imperfed.results.summary import OverSites, Summary

Figure = tuple[float, int]
"""A value and the number of examples it was measured on."""
Course = dict[int, dict[str, Figure]]
"""A metric's figures by round and site."""
Event = tuple[str, list[int]]
"""Something unusual, and the rounds in which it happened."""

PERSONAL, COMMON = "test/personal/", "test/global/"
STAMPED = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+ (?:round (\d+): )?(.*)")
ORDINARY = re.compile(r"\d+ of \d+ sites answered, |\S+ looked: ")


@dataclass(frozen=True)
class SiteRow:
    """One line of the table of sites; None for figures that do not exist."""

    site: str
    train: int
    test: int
    value: float | None
    labels: float | None


@dataclass(frozen=True)
class LabelFiles:
    """The contents of the sites' label files, one site after the other."""

    confidence: np.ndarray[Any, Any]
    sizes: np.ndarray[Any, Any]
    """The number of candidates of every row."""


@dataclass(frozen=True)
class RunFiles:
    """Everything that the report needs from a run."""

    config: Config
    settings: str
    environment: dict[str, Any]
    summary: Summary | None
    """None until the run has finished."""
    history: Mapping[str, Course]
    metric: str | None
    """The name of the leading figure; None if nothing was measured."""
    sites: Sequence[SiteRow]
    overall: OverSites
    one_test: bool
    """Whether all sites are tested on the same rows."""
    common: Figure | None
    """The leading figure of the global model on the common test set."""
    sent: Mapping[str, Sequence[int]]
    labels: LabelFiles | None
    events: Sequence[Event]
    leak: LeakSummary | None
    """What a coordinator could reconstruct; None if that was not tried."""

    @property
    def round(self) -> int:
        """The last finished round."""
        return max((round for course in self.history.values() for round in course), default=0)

    @property
    def measured(self) -> int:
        """The last round after which the models were evaluated."""
        return max(self.course(PERSONAL) or self.course(COMMON), default=0)

    def course(self, prefix: str) -> Course:
        """Return the leading figure by round, of the sites' models or of the global one."""
        return self.history.get(f"{prefix}{self.metric}", {})


def read_run(folder: RunFolder) -> RunFiles:
    """Read the files of a run; those that a run writes at its end may be missing."""
    records = list(folder.records())
    history, summary = by_metric(records), folder.summary()
    metric = summary.metric if summary else leading(history)
    config = folder.config()
    shared = summary.facts.common_test if summary else config.split.common_test
    sites = rows_of(summary) if summary else rows_so_far(folder, history.get(f"{PERSONAL}{metric}", {}))
    return RunFiles(
        config=config,
        settings=_text(folder.path / "config.toml"),
        environment=folder.environment(),
        summary=summary,
        history=history,
        metric=metric,
        sites=sites,
        overall=OverSites.of([(row.value, row.test) for row in sites if row.value is not None], shared),
        one_test=shared,
        common=kept(history.get(f"{COMMON}{metric}", {}), summary).get("*"),
        sent=summary.sent if summary else sent(records),
        labels=label_files(folder, sites) if summary and isinstance(summary.labels, ResolvedLabels) else None,
        events=events(_text(folder.path / "log.txt").splitlines()),
        leak=read_leak(folder.path / "leak.json"),
    )


def read_leak(path: Path) -> LeakSummary | None:
    """Read what `imperfed leak` has written about a run, if it has."""
    return parse_file(path, LeakSummary.from_json, "delete it to continue without it") if path.exists() else None


def by_metric(records: Iterable[Record]) -> dict[str, Course]:
    """Return the lines of `metrics.jsonl` by metric, round and site."""
    history: dict[str, Course] = {}
    for r in records:
        history.setdefault(r["metric"], {}).setdefault(r["round"], {})[r["site"]] = (r["value"], r.get("n", 0))
    return history


def leading(history: Mapping[str, Course]) -> str | None:
    """Return the metric that was recorded first, which is the leading one."""
    named = [name.removeprefix(prefix) for prefix in (PERSONAL, COMMON) for name in history if name.startswith(prefix)]
    return next(iter(named), None)


def last(course: Course) -> dict[str, Figure]:
    """Return the figures of the last round that has any."""
    return course[max(course)] if course else {}


def kept(course: Course, summary: Summary | None) -> dict[str, Figure]:
    """Return the figures of the round whose models are kept: the best one by rows held out, or else the last."""
    best = summary.validation if summary else None
    return course.get(best.round, {}) if best is not None and best.kept else last(course)


def rows_of(summary: Summary) -> list[SiteRow]:
    """Return the table of sites of a finished run."""
    return [SiteRow(row.site, row.train, row.test, row.value, row.labels) for row in summary.sites]


def rows_so_far(folder: RunFolder, course: Course) -> list[SiteRow]:
    """Return the table of sites of an unfinished run: its split, and the latest figures."""
    measured = last(course)
    return [
        SiteRow(site, len(ids), measured[site][1], measured[site][0], None)
        if site in measured
        else SiteRow(site, len(ids), 0, None, None)
        for site, ids in folder.split().items()
    ]


def label_files(folder: RunFolder, sites: Sequence[SiteRow]) -> LabelFiles | None:
    """Return confidence and set size of every training row; None if label files were deleted or are very many."""
    import pyarrow
    from pyarrow import compute, parquet

    if len(sites) > MANY:
        return None
    paths = [folder.path / "labels" / f"{row.site}.parquet" for row in sites]
    tables = []
    for path in paths:
        if not path.exists():
            return None
        try:
            tables.append(parquet.read_table(path, columns=["given", "confidence"]))
        except pyarrow.ArrowException as error:
            raise DataError(
                f"{path}: not a readable label file ({error}); `imperfed run` the settings again"
            ) from error
    table = pyarrow.concat_tables(tables)
    sizes = compute.count_substring(table["given"], "|").to_numpy() + 1
    return LabelFiles(table["confidence"].to_numpy(), sizes)


def events(log: Iterable[str]) -> list[Event]:
    """Return the unusual entries of `log.txt`: every sentence once with its rounds, failures first."""
    rounds_of: dict[str, list[int]] = {}
    for line in log:
        stamped = STAMPED.fullmatch(line)
        if stamped and not ORDINARY.match(stamped[2]):
            rounds = rounds_of.setdefault(stamped[2], [])
            rounds += [int(stamped[1])] if stamped[1] else []
    return sorted(rounds_of.items(), key=lambda event: "failed" not in event[0])


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
