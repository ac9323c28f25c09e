"""The progress of a run: a live bar on a terminal, one line per round otherwise, and the handling of Ctrl-C."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.status import Status

from imperfed.data.federate import FederatedData
from imperfed.engine.schedule import RoundReport
from imperfed.experiments.config import Config
from imperfed.experiments.watch import Interrupted, Watch
from imperfed.report.words import many
from imperfed.results.data_facts import DataFacts

FORWARDED = 2.0
"""Seconds within which torchrun, which received Ctrl-C as well, has passed it on to its processes."""


class Show:
    """Shows the progress of runs on a console."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.stopping = False
        self.total = 0
        self.began = time.perf_counter()
        self.first = 0
        self.last_score = ""
        self.searching = False
        """Whether the bar is that of a search."""
        self.tenth = 0
        """The tenths of a search that are done."""
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.waiting: Status | None = None

    def watch(self) -> Watch:
        """Return the hooks that a run calls."""
        return Watch(self.prepare, self.begin, self.round, self.search, lambda: self.stopping)

    def prepare(self, config: Config) -> None:
        """Show that data are being prepared before the first round."""
        self.end()
        if self.console.is_terminal:
            self.waiting = self.console.status(f"preparing {config.run.data}")
            self.waiting.start()

    def begin(self, config: Config, data: FederatedData, round: int) -> None:
        """Print which method is about to be trained on which data."""
        self.end()
        self.total, self.first, self.began = config.rounds.rounds, round, time.perf_counter()
        self.last_score, self.searching = "", False
        self.console.print(f"{config.run.title} on {describe(data)}", style="bold")
        if own := DataFacts.of(data.facts).sites_not_used:
            self.console.print(f"sites are simulated; to use the {own} that the data name: -s partition=column")
        if self.console.is_terminal:
            self.bar = Progress(
                TextColumn("round"),
                MofNCompleteColumn(),
                BarColumn(),
                TextColumn("{task.description}"),
                TimeRemainingColumn(),
                console=self.console,
                transient=True,
            )
            self.task = self.bar.add_task("", total=self.total, completed=round)
            self.bar.start()

    def search(self, doing: str, share: float) -> None:
        """Show what the search before a run is doing: on a terminal in the bar, otherwise after each tenth of it."""
        if self.bar is not None:
            if not self.searching:
                self.bar.stop()
                self.bar, self.searching = self.searching_bar(), True
            self.bar.update(self.task, completed=share, description=doing)
        elif int(10 * share) != self.tenth:
            self.tenth = int(10 * share)
            left = (time.perf_counter() - self.began) * (1 - share) / max(share, 1e-3)
            self.console.print(f"search: {doing}" + (f", {left:.0f} s left" if share else ""))

    def searching_bar(self) -> Progress:
        """Return a bar for a search, begun."""
        columns = (TextColumn("search"), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        bar = Progress(*columns, console=self.console, transient=True)
        self.task = bar.add_task("", total=1.0)
        bar.start()
        return bar

    def round(self, report: RoundReport, seconds: float) -> None:
        """Show a finished round."""
        done = report.round + 1
        failed = f", {len(report.failures)} failed" if report.failures else ""
        text = f"{report.course()}{self.score(report)}{validation_of(report)}{failed}"
        left = (time.perf_counter() - self.began) / (done - self.first) * (self.total - done)
        if self.bar is not None:
            self.bar.update(self.task, completed=done, description=text)
            if done == self.total:
                self.end()
        else:
            self.console.print(f"round {done}/{self.total}: {text}, {seconds:.2f} s, {left:.0f} s left")

    def score(self, report: RoundReport) -> str:
        """Return the round's leading figure; a bar keeps showing the last one through rounds without one."""
        if report.personal:
            name = next(iter(next(iter(report.personal.values()))))  # of any one site: some may be away
            values = [100 * s[name][0] for s in report.personal.values() if math.isfinite(s[name][0])]
            self.last_score = ""
            if values:
                self.last_score = f", {name} {sum(values) / len(values):.1f} % (worst site {min(values):.1f} %)"
        elif report.common:
            name, (value, _) = next(iter(report.common.items()))
            self.last_score = f", {name} {100 * value:.1f} %"
        return self.last_score if report.personal or report.common or self.bar is not None else ""

    def end(self) -> None:
        """Remove the spinner and the bar."""
        if self.waiting is not None:
            self.waiting.stop()
            self.waiting = None
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """On the first Ctrl-C, finish the round and write a checkpoint; on the second, stop at once."""
        first = -math.inf

        def interrupt(number: int, frame: FrameType | None) -> None:
            nonlocal first
            if "TORCHELASTIC_RUN_ID" in os.environ and time.monotonic() - first < FORWARDED:
                return
            if self.stopping:
                raise KeyboardInterrupt
            self.stopping, first = True, time.monotonic()
            # In a thread of its own: whatever was being printed would be printed twice.
            text = "stopping after this round, with a checkpoint; Ctrl-C again to stop at once"
            threading.Thread(target=self.console.print, args=(text,)).start()

        before = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        except KeyboardInterrupt:
            raise Interrupted("stopped at once; `imperfed resume` continues from the run's last checkpoint") from None
        finally:
            signal.signal(signal.SIGINT, before)
            self.end()


def validation_of(report: RoundReport) -> str:
    """Return the score on the rows that the sites hold out, and the best round by it so far; empty if there is none."""
    if not report.validation.known:
        return ""
    return f", validation {100 * report.validation.score:.1f} % (best: round {report.best})"


def describe(data: FederatedData) -> str:
    """Describe a federation in one line."""
    federation, facts = data.federation, DataFacts.of(data.facts)
    sizes = federation.sizes()
    rows = many(max(sizes), "row") if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)} rows"
    text = f"{federation.name}: {many(len(sizes), 'site')} of {rows}, {federation.labels.kind}"
    if facts.mean_size is not None:
        text += f" of mean size {facts.mean_size:.2f} among {len(federation.classes)} classes"
    if facts.instead_of is not None:
        text += f" (the true ones, not the {facts.instead_of} that the data come with)"
    if absent := facts.classes_at_nobody:
        text += f", {len(federation.classes) - len(absent)} of {len(federation.classes)} classes held by some site"
    return text
