"""A study: a paper's table as a file, with the settings of all its runs, its rows, and the paper's figures."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from imperfed.core.errors import DataError, unknown
from imperfed.experiments.config import read


@dataclass(frozen=True)
class Study:
    """What `imperfed compare` makes one table of, and `imperfed reproduce` one for every dataset."""

    settings: dict[str, Any]
    """The settings of every run, as section.key or with the section omitted."""
    methods: tuple[str, ...]
    """One per row, each with its own settings after its name."""
    paper: dict[str, float]
    """The paper's figures in per cent, for the rows that have one."""
    title: str = ""
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    """The paper's figures by dataset, where the table has several."""

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets of the table."""
        return tuple(self.figures) or (str(self.settings["data"]),)

    def on(self, data: str) -> Study:
        """Return the part of the table that is about one dataset."""
        if not self.figures:
            return self
        return replace(self, settings=self.settings | {"data": data}, paper=self.figures[data], figures={})


def read_study(name: str) -> Study:
    """Read a study from the user's own file, or from one that comes with imperfed."""
    path = Path(name)
    if not path.exists():
        path = bundled(name)
    file = read(path)
    rows, settings = file.get("rows"), file.get("settings", {})
    if not (rows and isinstance(rows, list) and all(map(is_row, rows)) and isinstance(settings, dict)):
        raise DataError(
            f"{name}: not a study; it needs [[rows]], each with method = 'a name and its settings' and, where there is "
            "one, paper = a number; settings of all rows go under [settings]"
        )
    words: dict[str, Any] = {}
    for key, value in settings.items():
        words |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
    paper = {row["method"]: float(row["paper"]) for row in rows if "paper" in row}
    figures = {} if "data" in words else file.get("figures", {})
    return Study(words, tuple(row["method"] for row in rows), paper, str(file.get("title", name)), figures)


def studies() -> dict[str, Path]:
    """Return the studies that come with imperfed, by the names that `reproduce` takes: paper/table."""
    folder = Path(str(resources.files("imperfed.experiments.studies")))
    files = {path: read(path) for path in sorted(folder.glob("*.toml"))}
    return {file["study"]: path for path, file in files.items() if "study" in file}


def is_row(row: Any) -> bool:
    """Return whether a row names a method, and its figure, if any, is a number."""
    named = isinstance(row, dict) and isinstance(row.get("method"), str) and bool(row["method"].strip())
    return named and isinstance(row.get("paper", 0), int | float)


def bundled(name: str) -> Path:
    """Return the file of a study that comes with imperfed."""
    folder = Path(str(resources.files("imperfed.experiments.studies")))
    known = [path.name for path in folder.glob("*.toml") if "rows" in read(path)]
    if name not in known:
        raise unknown("study", name, known)
    return folder / name
