"""Profiles of the columns of tables without a declaration, file by file."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from imperfed.data.files.cells import NUMBER
from imperfed.data.files.memory import MemoryTable, Source
from imperfed.data.files.problems import LINED, Problems, shown
from imperfed.data.files.table import IMAGES, read_table
from imperfed.data.files.text import DELIMITERS

MOST_WORDS, MOST_NUMBERS = 1_000_000, 1_000
"""The most distinct values of a column that are remembered."""
SPOILT = 0.05
"""The largest share of cells without a number that are taken as mistakes."""
MARKS = (-1.0, 0.0, 1.0)
SEPARATORS = ("|", ";", ",")
PAIRS = re.compile(r"\d+:[-+.\deE]+(\s+\d+:[-+.\deE]+)*")


@dataclass(frozen=True)
class Column:
    """The contents of one column of one file, or of several files together."""

    name: str
    rows: int
    blanks: int
    numeric: bool
    """Whether every cell that is not blank is a number."""
    odd: int
    """The number of cells that are neither blank nor a number; 0 if `numeric`."""
    lists: bool
    unique: bool
    """Whether no value occurs in two rows of a file."""
    values: frozenset[str] | None
    """The distinct values (of lists: their items), or None if there are too many."""

    def __add__(self, other: Column) -> Column:
        numeric = self.numeric and other.numeric
        values = None if self.values is None or other.values is None else _kept(self.values | other.values, numeric)
        return Column(
            self.name,
            self.rows + other.rows,
            self.blanks + other.blanks,
            numeric,
            self.odd + other.odd,
            self.lists and other.lists,
            self.unique and other.unique,
            values,
        )

    @property
    def few(self) -> bool:
        """Whether values repeat, as names of classes and categories do."""
        return self.values is not None and 0 < len(self.values) <= max(2, (self.rows - self.blanks) // 2)

    @property
    def nearly_numeric(self) -> bool:
        """Whether all but a few cells are numbers."""
        return not self.lists and 0 < self.odd <= SPOILT * (self.rows - self.blanks)

    @property
    def paths(self) -> bool:
        """Whether the values are paths of images."""
        return bool(self.values) and all(value.lower().endswith(IMAGES) for value in self.values or ())

    @property
    def pairs(self) -> bool:
        """Whether the values are sparse features, written as `index:value` pairs."""
        return bool(self.values) and all(PAIRS.fullmatch(value) for value in self.values or ())

    @property
    def marks(self) -> bool:
        """Whether the values are only yes, no and in doubt."""
        return bool(self.values) and self.numeric and {*map(float, self.values or ())} <= {*MARKS}

    def separator(self) -> str:
        """Return the mark between the names of a set; empty if cells hold no sets."""
        if self.numeric or not self.values:
            return ""
        for mark in SEPARATORS:
            sets = [[item.strip() for item in value.split(mark)] for value in self.values]
            items = {item for names in sets for item in names}
            if any(len(names) > 1 for names in sets) and "" not in items and len(items) <= max(2, self.rows // 2):
                return mark
        return ""

    def names(self) -> tuple[str, ...]:
        """Return the names that occur, alone or in sets: numbers in ascending order, words in alphabetical order."""
        mark = self.separator()
        names = {item.strip() for value in self.values or () for item in (value.split(mark) if mark else (value,))}
        return tuple(sorted(names, key=float) if self.numeric else sorted(names))


def profile(files: Iterable[Source], delimiter: str, problems: Problems) -> list[dict[str, Column]]:
    """Return the columns of every file, in the order of the file; note files that cannot be read."""
    import pyarrow

    profiles = []
    for path in files:
        try:
            columns = _read(path, delimiter)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            _note(path, delimiter, str(error).partition("\n")[0], problems)
        else:
            profiles.append({name: _look(name, values) for name, values in columns.items()})
    return profiles


def merged(profiles: Iterable[dict[str, Column]]) -> dict[str, Column]:
    """Return every column, merged over the files that have it, in order of first appearance."""
    every = list(profiles)
    names = dict.fromkeys(name for columns in every for name in columns)
    return {name: reduce(Column.__add__, (columns[name] for columns in every if name in columns)) for name in names}


def find_delimiter(path: Source) -> str:
    """Return the delimiter of a text file: the mark that splits its first line into the most cells."""
    if isinstance(path, MemoryTable) or path.suffix.lower() != ".csv":
        return ","
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        first = file.readline()
    return max(DELIMITERS, key=lambda mark: len(next(csv.reader([first], delimiter=mark), [])))


def _read(path: Source, delimiter: str) -> dict[str, Any]:
    """Return all columns of a table; those of text files as text."""
    import pyarrow
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    if isinstance(path, MemoryTable):
        return {name: column for name, column in path.columns.items() if not isinstance(column, np.ndarray)}
    if path.suffix.lower() == ".parquet":
        table = parquet.read_table(path)
    else:
        mark = "\t" if path.suffix.lower() == ".tsv" else delimiter
        parse = arrow_csv.ParseOptions(delimiter=mark, newlines_in_values=True)
        with arrow_csv.open_csv(path, parse_options=parse) as stream:
            names = stream.schema.names
        text = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string()))
        table = arrow_csv.read_csv(path, parse_options=parse, convert_options=text)
    return {name.strip(): column for name, column in zip(table.column_names, table.columns, strict=True)}


def _note(path: Source, delimiter: str, error: str, problems: Problems) -> None:
    """Note why a file cannot be read: with lines, as the reader of sites does, or else in the words of `error`."""
    noted = Problems()
    read_table(path, {}, delimiter, noted, slowly=True)
    if not noted and isinstance(path, Path) and path.suffix.lower() in LINED:
        _note_encoding(path, noted)
    if not noted:
        noted.add(path, None, None, error, "a table", "write it again")
    problems.take(noted)


def _note_encoding(path: Path, problems: Problems) -> None:
    """Note the first line that is not UTF-8, if there is one."""
    text = path.read_bytes()
    try:
        text.decode()
    except UnicodeDecodeError as error:
        line, wrong = text[: error.start].count(b"\n") + 1, shown(text[error.start : error.end])
        problems.add(path, line, None, wrong, "UTF-8 text", "save the file as UTF-8")


def _look(name: str, values: Any) -> Column:
    import pyarrow
    from pyarrow import compute, types

    lists = types.is_list(values.type) or types.is_large_list(values.type)
    items = compute.list_flatten(values) if lists else values
    plain = items.cast(items.type.value_type) if types.is_dictionary(items.type) else items
    if types.is_boolean(plain.type):
        plain = plain.cast(pyarrow.int8())  # 1 and 0, as cells are read
    text = compute.utf8_trim_whitespace(plain.cast(pyarrow.string()))
    filled = text.filter(compute.fill_null(compute.not_equal(text, ""), False))
    distinct = filled.unique()
    try:
        compute.cast(distinct, pyarrow.float64())
        numeric, odd = True, 0  # also if all cells are blank: other files may have numbers there
    except pyarrow.ArrowInvalid:
        right = compute.match_substring_regex(filled, f"^(?:{NUMBER.pattern})$")
        numeric, odd = False, len(filled) - compute.sum(right).as_py()
    rows, blanks = len(values), 0 if lists else len(values) - len(filled)
    unique = len(distinct) == rows - blanks and not lists
    return Column(name, rows, blanks, numeric, odd, lists, unique, _kept(distinct.to_pylist(), numeric))


def _kept(values: Collection[str], numeric: bool) -> frozenset[str] | None:
    return frozenset(values) if len(values) <= (MOST_NUMBERS if numeric else MOST_WORDS) else None


def values_by_site(
    files: Sequence[Source], columns: Sequence[dict[str, Column]], name: str, site: str, delimiter: str
) -> list[int]:
    """Count the distinct values of a column per site; `site` names the column of the site in one file for all sites."""
    if not site:
        return [len(part[name].values or ()) for part in columns]
    import pyarrow

    both = {key: values for key, values in _read(files[0], delimiter).items() if key in (name, site)}
    counted = pyarrow.table(both).group_by(site).aggregate([(name, "count_distinct")])
    return [int(n) for n in counted[f"{name}_count_distinct"].to_pylist()]
