"""The metrics of a run in the formats of tracking tools, beside `metrics.jsonl`, from which they are made.

They are written as a run goes on, and from the beginning again when it is resumed: a round that is repeated stands
there once, and rounds from before tracking was asked for are there too.
"""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from imperfed.core.errors import UsageError
from imperfed.results.folder import Record, RunFolder


class Tracker(ABC):
    """Writes the lines of `metrics.jsonl` in the format of one tool, into a folder of the run's folder."""

    package: ClassVar[str]
    """What must be installed."""
    place: ClassVar[str]
    """The folder in which the tool's files are."""

    def __init__(self, run: RunFolder, settings: Mapping[str, Any]) -> None:
        """Begin without files; `settings`: of the run, by section.key."""
        self.run, self.settings = run, settings
        self.read = 0
        self.forget()

    @property
    def folder(self) -> Path:
        """Where the tool's files are."""
        return self.run.path / self.place

    def forget(self) -> None:
        """Delete what an earlier part of the run has written."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def catch_up(self) -> None:
        """Write what has been added to `metrics.jsonl` since the last call."""
        path = self.run.path / "metrics.jsonl"
        if not path.exists():
            return
        with path.open(encoding="utf-8") as file:
            file.seek(self.read)
            lines = file.readlines()
            self.read = file.tell()
        if lines:
            self.write([json.loads(line) for line in lines])

    @abstractmethod
    def write(self, records: list[Record]) -> None:
        """Write further lines."""

    def end(self, completed: bool) -> None:  # noqa: B027 (most have nothing left to do)
        """Write what is left at the end; `completed`: whether the run has its results."""


def tracker_class(tool: str) -> type[Tracker]:
    """Return the tracker for a tool; refuse one that is not installed."""
    from imperfed.results.mlflow_run import MlflowRun
    from imperfed.results.tensorboard_events import TensorBoardEvents

    kind = TensorBoardEvents if tool == "tensorboard" else MlflowRun
    spec = find_spec(kind.package)
    if spec is None or spec.origin is None:  # a mere folder of that name, such as that of an earlier run, has no origin
        raise UsageError(f"track={tool}: {tool} is not installed; pip install 'imperfed[{tool}]', or leave it out")
    return kind


@contextmanager
def tracking(tool: str, run: RunFolder, settings: Mapping[str, Any]) -> Iterator[Tracker | None]:
    """Yield what writes the metrics of a run for a tool, or None where no tool is wanted; end it with the run."""
    if tool == "none":
        yield None
        return
    tracker = tracker_class(tool)(run, settings)
    tracker.catch_up()
    try:
        yield tracker
    except BaseException:
        tracker.end(completed=False)
        raise
    tracker.end(completed=True)
