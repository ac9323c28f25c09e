"""How far a run is, from the files of its folder alone, so that another process or machine can ask."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from imperfed.data.files.declaration import called
from imperfed.report.run_files import COMMON, PERSONAL, STAMPED, Course, RunFiles, read_run
from imperfed.report.words import named
from imperfed.results.folder import RunFolder
from imperfed.results.prediction_figures import listed
from imperfed.results.site_verdicts import OUT, judges, metric_of

ROUND = re.compile(r"(\d{4}-\d\d-\d\dT[\d:]+) round (\d+): \d+ of \d+ sites answered")
QUIET = 120.0
"""Seconds without a new line after which a page says so, or three times a round if that is more."""
RECENT = 20
"""The rounds by whose time the time left is estimated."""
PAUSE = 5
"""How many times as long as most a step must take to be taken for a pause."""
SHOWN = 8
"""The number of events that are shown."""
Point = tuple[int, float]
"""A round and a value."""


@dataclass(frozen=True)
class SiteStatus:
    """One site: its newest figure, and the last round in which it trained."""

    site: str
    value: float | None
    last_round: int | None
    """None where no site sends its loss, so that it is not known."""
    out: int | None = None
    """The number of rounds in which a defence left it out; None where no defence judges single sites."""
    out_now: bool = False
    """Whether one did so when it judged the site last."""


@dataclass(frozen=True)
class RunStatus:
    """A run as its files describe it at one moment. Figures are fractions."""

    title: str
    data: str
    state: str
    """ended, interrupted, running, or silent: nothing was written for long."""
    searching: bool
    """Whether there are no rounds yet, since the best method is still searched for."""
    round: int
    rounds: int
    seconds_left: float | None
    """None before the second round, and after the end."""
    metric: str
    mean: float | None
    worst: float | None
    loss: tuple[Point, ...]
    figure: tuple[Point, ...]
    """The leading figure, mean over sites, or of the global model if sites have none."""
    sites: tuple[SiteStatus, ...]
    events: tuple[str, ...]
    """What was out of the ordinary, failures first."""

    @classmethod
    def of(cls, path: Path, now: float | None = None) -> RunStatus:
        """Read the folder of a run; `now`: seconds since the epoch."""
        folder = RunFolder.open(path)
        run, stamps = read_run(folder), round_times(path / "log.txt")
        pace = pace_of(stamps)
        left = None if run.summary is not None or pace is None else pace * (folder.rounds() - run.round)
        quiet = (time.time() if now is None else now) - last_news(path)
        figure = points(run.course(PERSONAL)) or points(run.course(COMMON))
        return cls(
            title="auto" if folder.searching else run.config.run.title,
            data=called(run.config.run.data),
            state="ended" if run.summary is not None else state_of(folder, quiet, pace),
            searching=folder.searching,
            round=run.round,
            rounds=folder.rounds(),
            seconds_left=left,
            metric=named(run.metric) if run.metric else "",
            mean=run.overall.mean if run.overall.mean is not None else (figure[-1][1] if figure else None),
            worst=run.overall.worst,
            loss=points(run.history.get("train/loss", {})),
            figure=figure,
            sites=site_rows(run),
            events=tuple(said(text, rounds) for text, rounds in run.events[:SHOWN]),
        )

    def plain(self) -> dict[str, Any]:
        """Return the same for JSON."""
        return asdict(self)

    def sentences(self) -> list[str]:
        """Return the same for a terminal."""
        where = "in the search" if self.searching else f"round {self.round} of {self.rounds}{self._left()}"
        again = "; `imperfed resume` continues it" if self.state == "interrupted" else ""
        lines = [f"{self.title} on {self.data}: {self.state}, {where}{again}"]
        if self.mean is not None:
            worst = "" if self.worst is None else f", worst site {100 * self.worst:.1f} %"
            lines.append(f"{self.metric} {100 * self.mean:.1f} %{worst}")
        if self.loss:
            lines.append(f"loss {self.loss[-1][1]:.4g}")
        left_out = [row.site for row in self.sites if row.out_now]
        if left_out:
            lines.append(f"left out by the defence: {listed(left_out)}")
        behind = [row.site for row in self.sites if row.last_round is not None and row.last_round < self.round]
        if behind and self.state != "ended":
            lines.append(f"not in the last round: {listed(behind)}")
        return lines + list(self.events)

    def _left(self) -> str:
        if self.seconds_left is None or self.state != "running":
            return ""
        minutes, seconds = divmod(round(self.seconds_left), 60)
        return f", about {minutes} min {seconds} s left" if minutes else f", about {seconds} s left"


def points(course: Course) -> tuple[Point, ...]:
    """Return the mean over sites by round; values that are not finite are left out."""
    finite = {
        round: [value for value, _ in sites.values() if math.isfinite(value)] for round, sites in sorted(course.items())
    }
    return tuple((round, fmean(values)) for round, values in finite.items() if values)


def site_rows(run: RunFiles) -> tuple[SiteStatus, ...]:
    """Return what is known of every site."""
    trained: dict[str, int] = {}
    for round, sites in sorted(run.history.get("train/loss", {}).items()):
        trained |= dict.fromkeys(sites, round)
    values = {row.site: row.value for row in run.sites}  # a coordinator knows sites by their answers only
    never = 0 if trained else None
    verdicts = verdicts_on(run)
    judged = {site: (sum(rounds.values()), rounds[max(rounds)]) for site, rounds in verdicts.items()}
    none = (0, False) if verdicts else (None, False)
    return tuple(
        SiteStatus(site, values.get(site), trained.get(site, never), *judged.get(site, none))
        for site in {**values, **trained, **verdicts}
    )


def verdicts_on(run: RunFiles) -> dict[str, dict[int, bool]]:
    """Return by site and round whether any defence left the site out, where one judged it."""
    verdicts: dict[str, dict[int, bool]] = {}
    for judge in judges(run.history):
        for round, sites in run.history[metric_of(OUT, judge)].items():
            for site, (out, _) in sites.items():
                rounds = verdicts.setdefault(site, {})
                rounds[round] = rounds.get(round, False) or out > 0
    return verdicts


def round_times(log: Path) -> list[float]:
    """Return when each round ended."""
    text = log.read_text(encoding="utf-8") if log.exists() else ""
    return [datetime.fromisoformat(found[1]).timestamp() for found in ROUND.finditer(text)]


def state_of(folder: RunFolder, quiet: float, pace: float | None) -> str:
    """Return whether a run that has not ended is running; `quiet`: seconds since it wrote something."""
    if interrupted(folder.path / "log.txt"):
        return "interrupted"
    usual = 60 * folder.budget if folder.searching else pace or 0.0  # a search writes nothing until it has chosen
    return "silent" if quiet > max(QUIET, 3 * usual) else "running"


def interrupted(log: Path) -> bool:
    """Return whether the last that a run has said is that it was interrupted."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    stamped = STAMPED.fullmatch(lines[-1]) if lines else None
    return stamped is not None and stamped[2].startswith("interrupted")


def pace_of(stamps: Sequence[float]) -> float | None:
    """Return the seconds of a round: the mean over the last ones, without a pause such as that before a resume.

    Times are whole seconds, so that a mean of many is needed where rounds are shorter than that.
    """
    steps = [later - earlier for earlier, later in pairwise(stamps[-1 - RECENT :])]
    if not steps:
        return None
    usual = PAUSE * (median(steps) + 1)
    return fmean(step for step in steps if step <= usual)


def last_news(path: Path) -> float:
    """Return when the run last wrote something."""
    files = [path / name for name in ("log.txt", "metrics.jsonl", "messages.txt", "config.toml")]
    return max(file.stat().st_mtime for file in files if file.exists())


def said(text: str, rounds: Sequence[int]) -> str:
    """Return an event with the rounds in which it happened."""
    if not rounds:
        return text
    return f"round {rounds[-1]}: {text}" + (f" ({len(rounds)} times)" if len(rounds) > 1 else "")
