"""The progress of a run that Python started: a bar in a terminal, some lines in a notebook, otherwise nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from imperfed.cli.screen import console
from imperfed.core.errors import UsageError
from imperfed.data.federate import FederatedData
from imperfed.engine.schedule import RoundReport
from imperfed.experiments.config import Config
from imperfed.experiments.progress import Show, describe, validation_of
from imperfed.experiments.watch import Watch

OnRound = Callable[[RoundReport], Any]
"""Called after every round; ends the run by returning True."""
LINES = 10
"""About as many lines are printed in a notebook, however many rounds there are."""


@contextmanager
def watching(progress: bool | None, on_round: OnRound | None = None, guessed: Sequence[str] = ()) -> Iterator[Watch]:
    """Yield the hooks that show a run, and that call `on_round` after every round."""
    if on_round is not None and not callable(on_round):
        raise UsageError(
            f"on_round: expected a function of a round's report; got a value of type {type(on_round).__name__}"
        )
    notebook, terminal = in_notebook(), sys.stdout.isatty()
    if progress is False or (progress is None and not (notebook or terminal)):
        yield heeding(Watch(), on_round)
        return
    for sentence in guessed:
        print(f"guessed: {sentence}")
    if not terminal:
        yield heeding(PlainLines().watch(), on_round)
        return
    show = Show(console())
    try:
        yield heeding(show.watch(), on_round)
    finally:
        show.end()


def heeding(watch: Watch, on_round: OnRound | None) -> Watch:
    """Return hooks that also call `on_round` and, if it returns True, end the run."""
    if on_round is None:
        return watch
    ends = False

    def round(report: RoundReport, seconds: float) -> None:
        nonlocal ends
        watch.round(report, seconds)
        ends = is_true(on_round(report))

    return replace(watch, round=round, end=lambda: ends)


def is_true(answer: Any) -> bool:
    """Return whether an answer is True, as Python or NumPy has it: a comparison of figures may give either."""
    return isinstance(answer, bool | np.bool_) and bool(answer)


class PlainLines:
    """Prints a line at the beginning, after some rounds, and after the last one."""

    def __init__(self) -> None:
        self.total = 0

    def watch(self) -> Watch:
        """Return the hooks that a run calls."""
        return Watch(begin=self.begin, round=self.round)

    def begin(self, config: Config, data: FederatedData, round: int) -> None:
        """Print which method is about to be trained on which data."""
        self.total = config.rounds.rounds
        print(f"{config.run.title} on {describe(data)}", flush=True)

    def round(self, report: RoundReport, seconds: float) -> None:
        """Print a line for every tenth of the rounds."""
        done = report.round + 1
        if done % -(-self.total // LINES) == 0 or done == self.total:
            print(f"round {done}/{self.total}: {report.course()}{validation_of(report)}, {seconds:.2f} s", flush=True)


def in_notebook() -> bool:
    """Return whether a notebook's kernel runs this; IPython is not imported for the question."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"
