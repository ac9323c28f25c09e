"""What is known of the benchmark: a line of JSON for every training, so that a killed one is continued."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from imperfed.benchmark.kinds import BenchmarkKind, BenchmarkSet
from imperfed.core.atomic import append_lines
from imperfed.experiments.config import Config
from imperfed.experiments.plugins import parts_of
from imperfed.experiments.reproduction.study_cells import MACHINE
from imperfed.experiments.tuning import Tuning

RUN = -1
"""The number of a training that is no trial."""


@dataclass(frozen=True)
class BenchmarkRecord:
    """One training that has ended: a trial, judged by rows held out, or a run, measured on test rows."""

    dataset: str
    method: str
    made: str
    """The digest of what it was made with: settings, budget, and the source of a plug-in."""
    seed: int
    trial: int = RUN
    """The number of a trial; -1: a run."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Those that were tried, or chosen."""
    score: float | None = None
    """Of a trial, on rows held out; None if it diverged or they say nothing."""
    figures: Mapping[str, float | None] = field(default_factory=dict)
    """Of a run, by measure."""
    failed: str = ""
    """Why there are no figures: it diverged, or the method does not fit the data."""
    diverged: bool = False
    seconds: float = 0.0
    version: str = ""
    device: str = ""

    @property
    def key(self) -> tuple[str, str, str, int, int]:
        """What distinguishes it from all other trainings of its kind."""
        return self.dataset, self.method, self.made, self.seed, self.trial

    @property
    def title(self) -> str:
        """What was trained, in words."""
        what = f"seed {self.seed}" if self.trial == RUN else f"trial {self.trial + 1}"
        return f"{self.dataset}, {self.method}, {what}"

    def line(self) -> str:
        """Return it as JSON, without what does not apply."""
        without = ("trial", "score") if self.trial == RUN else ("figures",)
        empty = {key for key in ("failed", "diverged") if not getattr(self, key)}
        return json.dumps({key: value for key, value in asdict(self).items() if key not in (*without, *empty)})


def digest(
    kind: BenchmarkKind, dataset: BenchmarkSet, how: Tuning, words: Mapping[str, Any] | None = None, source: str = ""
) -> str:
    """Return a short name for what trainings on a dataset are made with; `words`: settings that override the kind's.

    `source`: of a method that does not come with imperfed, so that an edited one is trained again.
    """
    settings = {**kind.words(dataset), **(words or {})}
    said = {key: str(value) for key, value in settings.items() if key.rpartition(".")[2] not in MACHINE}
    parts = [said, {"trials": how.trials, "held out": how.held_out, "seed": how.seed}, source]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:10]


def source_of(config: Config) -> str:
    """Return the source of the modules of those parts of a run that are not imperfed's own."""
    foreign = [part for part in parts_of(config).values() if not type(part).__module__.startswith("imperfed.")]
    return "".join(inspect.getsource(inspect.getmodule(type(part)) or type(part)) for part in foreign)


class BenchmarkRecords:
    """All trainings of one kind that are known, from the files that come with imperfed and those of this benchmark."""

    def __init__(self, records: Iterable[BenchmarkRecord] = (), path: Path | None = None) -> None:
        self.path = path
        """Where further ones are appended."""
        self.known = {record.key: record for record in records}

    @classmethod
    def read(cls, *paths: Path) -> BenchmarkRecords:
        """Read files of records, of which the last one is continued; a line that was cut short is left out."""
        return cls((record for path in paths for record in _lines(path)), paths[-1])

    def add(self, record: BenchmarkRecord) -> None:
        """Remember a training, at once in the file."""
        self.known[record.key] = record
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            append_lines(self.path, [record.line()])

    def runs(self, dataset: str, method: str, made: str) -> list[BenchmarkRecord]:
        """Return the runs of a method on a dataset, by seed."""
        return [self.known[key] for key in sorted(self.known) if key[:3] == (dataset, method, made) and key[4] == RUN]

    def trials(self, dataset: str, method: str, made: str) -> list[BenchmarkRecord]:
        """Return the trials of a method on a dataset, by number."""
        return [self.known[key] for key in sorted(self.known) if key[:3] == (dataset, method, made) and key[4] != RUN]


def _lines(path: Path) -> Iterator[BenchmarkRecord]:
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(ValueError, TypeError):
            yield BenchmarkRecord(**json.loads(line))
