"""A study: a paper's table or figure as a file, with the settings of its runs, its rows and columns, and the figures.

`docs/studies.md` describes the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from imperfed.core.errors import DataError, UsageError, unknown
from imperfed.experiments.experiment_file import read

FOLDER = Path(str(resources.files("imperfed.experiments.studies")))
"""Where the studies that come with imperfed lie, and beside each its results."""
KEYS = {
    *("title", "place", "labels", "differs", "substitute", "no_data", "program", "draw", "axis", "reference", "lacks"),
    *("gpu", "hours", "seeds", "measures", "beside_compare", "settings", "rows", "columns"),
}
"""What the file of a study may hold."""
OF_ROWS = {"name", "method", "paper"}
OF_COLUMNS = {"settings", "paper", "fill", "substitute", "no_data", "gpu", "hours"}


@dataclass(frozen=True)
class StudyRow:
    """One method with its settings."""

    name: str
    """As the paper calls it; by default the method as it is written."""
    method: str
    """A method and its settings, in which {words} stand for what a column fills in."""


@dataclass(frozen=True)
class StudyColumn:
    """What all rows are compared on: a dataset, or a value of a setting."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """The paper's figures by row, one for each of the study's first measures."""
    fill: Mapping[str, str] = field(default_factory=dict)
    substitute: str = ""
    """Why it stands for something else in the paper."""
    no_data: str = ""
    """Why it cannot be run."""
    gpu: str = ""
    """What takes too long without a GPU."""
    hours: str = ""
    """What takes hours on a CPU."""


@dataclass(frozen=True)
class Study:
    """A table or a figure of a paper, or a comparison of your own."""

    name: str
    settings: Mapping[str, Any]
    """The settings of every run, as section.key or with the section omitted."""
    rows: tuple[StudyRow, ...]
    columns: tuple[StudyColumn, ...]
    title: str = ""
    place: str = ""
    """Where the paper has it."""
    measures: tuple[str, ...] = ("mean",)
    """What is reported of every run, by names of `run_figures`."""
    seeds: int = 3
    """How many seeds make it complete."""
    differs: str = ""
    """What differs from the paper here, and why."""
    labels: str = ""
    """The kind of labels, if `compare` is to show the figures only for it."""
    beside_compare: bool = False
    """Whether the settings are those of the presets, so that `compare` shows the paper's figures as well."""
    substitute: str = ""
    no_data: str = ""
    program: str = ""
    """The program that makes the results, if `reproduce` does not."""
    draw: str = ""
    """What is drawn: `curves` over the rounds, or figures over the `axis`; empty: nothing."""
    axis: str = ""
    """The setting in which the columns differ."""
    gpu: str = ""
    """What takes too long without a GPU, if that holds for all columns."""
    hours: str = ""
    """What takes hours on a CPU, if that holds for all columns."""
    lacks: str = ""
    """Rows of the paper that are not here, and why."""
    reference: str = ""
    """The row from whose run of the same seed distances are measured."""

    @property
    def runnable(self) -> tuple[StudyColumn, ...]:
        """The columns for which there are data."""
        return () if self.no_data else tuple(column for column in self.columns if not column.no_data)

    def column(self, name: str) -> StudyColumn:
        """Return a column by its name."""
        found = {column.name: column for column in self.columns}
        if name not in found:
            raise unknown(f"column of {self.name}", name, found)
        return found[name]

    def method(self, row: StudyRow, column: StudyColumn) -> str:
        """Return a row's method and its settings for a column."""
        return row.method.format(**column.fill)

    def words(self, column: StudyColumn) -> dict[str, Any]:
        """Return the settings of all runs of a column."""
        return {**self.settings, **column.settings}


def read_study(name: str) -> Study:
    """Read a study from your own file, or one that comes with imperfed by its name."""
    path = Path(name)
    if path.suffix == ".toml" and path.exists():
        return _study(path.stem, read(path), name)
    known = studies()
    if name.removesuffix(".toml") not in known:
        raise unknown("study", name, known)
    return known[name.removesuffix(".toml")]


@cache
def studies() -> dict[str, Study]:
    """Return the studies that come with imperfed by name: paper/table."""
    found = {f"{path.parent.name}/{path.stem}": path for path in FOLDER.glob("*/*.toml")}
    return {name: _study(name, read(path), str(path)) for name, path in sorted(found.items(), key=_in_order)}


def _in_order(item: tuple[str, Path]) -> tuple[str, str, float, str]:
    """Return a key that sorts tables before figures, and both by their numbers."""
    paper, _, own = item[0].partition("/")
    kind, _, number = own.partition("-")
    digits = number.partition("-")[0].rstrip("abcd")
    return paper, {"table": "0"}.get(kind, kind), float(digits) if digits.replace(".", "").isdigit() else 0.0, own


def paper_figures(data: str, kind: str = "auto") -> dict[str, float]:
    """Return the papers' figures for a dataset's preset by method, in per cent, for this kind of labels."""
    figures: dict[str, float] = {}
    for study in studies().values():
        if study.beside_compare and kind in ("auto", study.labels or kind):
            for column in study.columns:
                if {**study.settings, **column.settings}.get("data") == data:
                    methods = {row.name: study.method(row, column) for row in study.rows}
                    figures |= {methods[row]: values[0] for row, values in column.paper.items()}
    return figures


# -- the file ----------------------------------------------------------------------------------------------------------


def _study(name: str, file: Mapping[str, Any], path: str) -> Study:
    """Return the study that a file describes."""
    rows, settings = file.get("rows"), file.get("settings", {})
    if not (rows and isinstance(rows, list) and all(map(_is_row, rows)) and isinstance(settings, dict)):
        raise DataError(
            f"{path}: not a study; it needs [[rows]], each with method = 'a name and its settings' and, where there is "
            "one, paper = a number; settings of all rows go under [settings]"
        )
    for found, known, where in _entries(file):
        if strange := sorted(set(found) - known):
            raise DataError(f"{path}: unknown entry {where}{strange[0]!r}; known are {', '.join(sorted(known))}")
    own = {key: value for key, value in file.items() if key not in ("rows", "columns", "settings", "measures")}
    study = Study(
        name,
        dict(flat_settings(settings)),
        tuple(StudyRow(str(row.get("name", row["method"])), row["method"]) for row in rows),
        tuple(_columns(file, settings)),
        measures=tuple(file.get("measures", ("mean",))),
        **{"title": path, **own},
    )
    _refuse_unknown_rows(study, path)
    return study


def _entries(file: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], set[str], str]]:
    """Yield every part of the file with what it may hold, and how it is called."""
    yield file, KEYS, ""
    for row in file["rows"]:
        yield row, OF_ROWS, "of a row: "
    for name, column in file.get("columns", {}).items():
        yield column, OF_COLUMNS, f"of column {name}: "


def _columns(file: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[StudyColumn]:
    """Yield the columns; a file without any has one, whose figures stand in the rows."""
    for name, column in file.get("columns", {}).items():
        paper = {row: _numbers(value) for row, value in column.get("paper", {}).items()}
        fill = {key: str(value) for key, value in column.get("fill", {}).items()}
        own = dict(flat_settings(column.get("settings", {})))
        said = {key: column[key] for key in ("substitute", "no_data", "gpu", "hours") if key in column}
        yield StudyColumn(name, own, paper, fill, **said)
    if "columns" not in file:
        rows = {row.get("name", row["method"]): _numbers(row["paper"]) for row in file["rows"] if "paper" in row}
        yield StudyColumn(str(settings.get("data", "all")), {}, rows)


def _numbers(value: Any) -> tuple[float, ...]:
    return tuple(map(float, value)) if isinstance(value, list) else (float(value),)


def flat_settings(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield settings as section.key, whether they are written so or in a section."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{own}", v) for own, v in value.items())
        else:
            yield key, value


def _refuse_unknown_rows(study: Study, path: str) -> None:
    """Refuse figures and references of rows that do not exist, rows of one name, and columns that cannot be named."""
    names = [row.name for row in study.rows]
    if twice := {name for name in names if names.count(name) > 1}:
        raise DataError(f"{path}: several rows are named {min(twice)!r}")
    for column in study.columns:
        if "," in column.name:
            raise DataError(f"{path}: column {column.name!r} has a comma in its name, at which --only cuts its list")
        if strange := [name for name in column.paper if name not in names]:
            raise DataError(f"{path}: column {column.name} has a figure for {strange[0]!r}, which is no row")
    if study.reference and study.reference not in names:
        raise DataError(f"{path}: reference = {study.reference!r} is no row")


def _is_row(row: Any) -> bool:
    """Return whether a row names a method, and its figures, if any, are numbers."""
    named = isinstance(row, dict) and isinstance(row.get("method"), str) and bool(row["method"].strip())
    values = row.get("paper", 0) if named else ""
    return named and all(isinstance(value, int | float) for value in (values if isinstance(values, list) else [values]))


def one_column(study: Study) -> tuple[tuple[str, ...], dict[str, Any], dict[str, float]]:
    """Return the methods, settings and figures of a study that `compare` can make, which has one column."""
    if len(study.columns) > 1:
        raise UsageError(f"{study.name} has {len(study.columns)} columns: imperfed reproduce makes such a table")
    (column,) = study.columns
    methods = {row.name: study.method(row, column) for row in study.rows}
    return (
        tuple(methods.values()),
        study.words(column),
        {methods[row]: values[0] for row, values in column.paper.items()},
    )
