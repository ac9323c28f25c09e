"""The results of a study: one cell for every row, column and seed, in a file with one line for each.

A cell remembers the settings that it was made with as a short digest, so that it counts only as long as the study says
the same ones: not after the study has changed, nor if the run was made with fewer rounds to try it out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from imperfed.core.atomic import write_whole
from imperfed.core.errors import DataError
from imperfed.experiments.study import FOLDER, Study, StudyColumn, StudyRow

MACHINE = {"device", "workers", "track", "compile"}
"""Settings that say how something is computed, not what."""


@dataclass(frozen=True)
class StudyCell:
    """The figures of one run."""

    row: str
    column: str
    seed: int
    made: str
    """The digest of its settings."""
    figures: Mapping[str, float | None] = field(default_factory=dict)
    """By measure, as fractions; None where a figure is undefined."""
    curve: Sequence[Sequence[float]] = ()
    """The leading figure after rounds: [round, value]."""
    seconds: float | None = None
    tuned: Mapping[str, Any] | None = None
    """The settings that were chosen on rows held out; None: those that the study says."""
    diverged: str = ""
    """The message, if it diverged."""

    @property
    def key(self) -> tuple[str, str, int, str, bool]:
        """What distinguishes it from all others of the study."""
        return self.row, self.column, self.seed, self.made, self.tuned is not None


def digest(study: Study, row: StudyRow, column: StudyColumn, words: Mapping[str, Any] | None = None) -> str:
    """Return a short name for what a cell is to be made with; `words`: settings that override the study's."""
    if study.program:
        said: dict[str, str] = {"program": study.program}
    else:
        settings = {**study.words(column), **(words or {})}
        said = {key: _text(value) for key, value in settings.items() if key.rpartition(".")[2] not in MACHINE}
        said["method"] = study.method(row, column)
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:10]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass
class StudyCells:
    """All cells of one study that are known."""

    name: str
    cells: dict[tuple[str, str, int, str, bool], StudyCell] = field(default_factory=dict)

    @classmethod
    def read(cls, name: str, path: Path) -> StudyCells:
        """Read a file of cells; there are none where there is no file."""
        if not path.exists():
            return cls(name)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            return cls(name).with_all(StudyCell(**cell) for cell in document["cells"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: cut short or damaged ({error}); delete it and reproduce again") from error

    def with_all(self, cells: Iterable[StudyCell]) -> StudyCells:
        """Return these cells and others, which replace those of the same key."""
        return StudyCells(self.name, {**self.cells, **{cell.key: cell for cell in cells}})

    def write(self, path: Path) -> None:
        """Write the file, with one line for each cell in a fixed order."""
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(_plain(self.cells[key]), ensure_ascii=False) for key in sorted(self.cells))
        text = f'{{"study": {json.dumps(self.name)}, "cells": [\n' + ",\n".join(lines) + "\n]}\n"
        write_whole(path, lambda partly: partly.write_text(text, encoding="utf-8"))

    def of(
        self,
        study: Study,
        row: StudyRow,
        column: StudyColumn,
        words: Mapping[str, Any] | None = None,
        tuned: bool = False,
    ) -> list[StudyCell]:
        """Return the cells of a row and a column, by seed, that were made with these settings."""
        made = digest(study, row, column, words)
        found = (cell for key, cell in sorted(self.cells.items()) if key[:2] == (row.name, column.name))
        return [cell for cell in found if cell.made == made and (cell.tuned is not None) == tuned]


def _plain(cell: StudyCell) -> dict[str, Any]:
    """Return a cell as plain values, without what does not apply, and figures with six digits."""
    plain: dict[str, Any] = {key: value for key, value in asdict(cell).items() if value not in (None, "", (), {})}
    figures = {name: None if value is None else round(value, 6) for name, value in cell.figures.items()}
    return plain | {"figures": figures} | ({"tuned": dict(cell.tuned)} if cell.tuned is not None else {})


def results_file(name: str) -> Path:
    """Return where the results of a study lie that comes with imperfed."""
    return FOLDER / f"{name}.json"


def kept(study: Study) -> StudyCells:
    """Return the results that come with imperfed."""
    return StudyCells.read(study.name, results_file(study.name))


def values(cells: Iterable[StudyCell], name: str) -> list[float]:
    """Return one figure of all cells that have it."""
    return [value for cell in cells if (value := cell.figures.get(name)) is not None]


def every(study: Study, columns: Iterable[StudyColumn]) -> Iterator[tuple[StudyRow, StudyColumn]]:
    """Yield all rows of all columns, column by column."""
    yield from ((row, column) for column in columns for row in study.rows)
