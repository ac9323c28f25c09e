"""Cells of words: the distinct values of a column, and what each of them names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from imperfed.core.labels.label_cells import UNKNOWN, UnreadableError
from imperfed.data.files.problems import Problems, listed, nearest, shown
from imperfed.data.files.table import FileTable

Index = npt.NDArray[np.int64]
Sets = npt.NDArray[np.bool_]
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
LIST_SEPARATOR = "\x1f"
"""Separates the names of a list column once it is text; no name that can be declared contains it."""


def codes_of(table: FileTable, name: str, problems: Problems) -> tuple[Index, list[Any]] | None:
    """Return the code of every row, and the value of every code, the last one None; None without such a column."""
    import pyarrow

    column = table.columns.get(name) if name else None
    if column is None or _is_matrix(table, name, problems):
        return None
    try:
        codes, values = encoded(column)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        found = f"a column of {column.type} ({shown(str(error))})"
        problems.add(table.file, None, name, found, "text, numbers or lists of them", "convert the column")
        return None
    return codes, [*values.to_pylist(), None]


def encoded(column: Any) -> tuple[Index, Any]:
    """Return the code of every row (nulls have the next free one) and the distinct values; lists become text."""
    import pyarrow
    from pyarrow import compute

    if pyarrow.types.is_nested(column.type):
        column = compute.binary_join(column.cast(pyarrow.list_(pyarrow.string())), LIST_SEPARATOR)
    if isinstance(column, pyarrow.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()  # one dictionary per chunk would be slow
    if not pyarrow.types.is_dictionary(column.type):
        column = compute.dictionary_encode(column)
    codes = column.indices.cast(pyarrow.int64()).fill_null(len(column.dictionary))
    return codes.to_numpy(zero_copy_only=False), column.dictionary


def text_of(table: FileTable, name: str, problems: Problems) -> Any:
    """Return a column with many distinct values, such as ids, as pyarrow text; None without such a column."""
    import pyarrow

    column = table.columns.get(name) if name else None
    if column is None or _is_matrix(table, name, problems):
        return None
    try:
        return column.cast(pyarrow.string())
    except pyarrow.ArrowException:
        problems.add(table.file, None, name, f"a column of {column.type}", "text or numbers", "convert the column")
        return None


def _is_matrix(table: FileTable, name: str, problems: Problems) -> bool:
    """Return whether a column has several values per row, and note it if so."""
    column = table.columns[name]
    if isinstance(column, np.ndarray):
        found = f"{column.dtype} of shape {column.shape}"
        problems.add(table.file, None, name, found, "one value per row", "store one value per row")
    return isinstance(column, np.ndarray)


def read_values(
    table: FileTable, name: str, read: Callable[[Any], Any], blank: Any, problems: Problems
) -> npt.NDArray[Any] | None:
    """Return the value of each row as converted by `read`, `blank` where that fails; None without such a column."""
    coded = codes_of(table, name, problems)
    if coded is None:
        return None
    codes, values = coded
    used = np.bincount(codes, minlength=len(values)) > 0
    converted, refused = [], {}
    for code, value in enumerate(values):
        try:
            converted.append(read(value) if used[code] else blank)
        except UnreadableError as refusal:
            converted.append(blank)
            refused[code] = refusal
    for row in np.flatnonzero(np.isin(codes, [*refused])).tolist() if refused else ():
        reason, value = refused[codes[row]], values[codes[row]]
        cell = "a blank" if value is None or value == "" else shown(_as_text(value))
        table.note(problems, row, name, cell, reason.expected, reason.fix)
    return np.array(converted)[codes]


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return word(value)
    return value.replace(LIST_SEPARATOR, "|") if isinstance(value, str) else value


def word(value: Any) -> str:
    """Return a value as a name: numbers as written, integers without a point, true as 1; empty for no value."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(int(value) if isinstance(value, bool) else value).strip()


def one_of(names: Sequence[str], what: str, numbered: bool = False) -> Callable[[Any], int]:
    """Return a reader that turns a declared name into its position; if `numbered`, the position itself is also read."""
    positions = {str(position): position for position in range(len(names))} if numbered else {}
    if any(name.isdecimal() for name in names):
        positions = {}
    positions |= {name: position for position, name in enumerate(names)}

    def read(value: Any) -> int:
        name = word(value)
        if name not in positions:
            raise UnreadableError(f"a declared {what}", nearest(name, names) if name else f"known: {listed(names)}")
        return positions[name]

    return read


def several_of(names: Sequence[str], what: str, separator: str) -> Callable[[Any], list[int]]:
    """Return a reader that turns separated names into their positions among the declared ones, in order."""
    read_one = one_of(names, what)

    def read(value: Any) -> list[int]:
        text = word(value)
        between = LIST_SEPARATOR if LIST_SEPARATOR in text else separator
        return [read_one(part) for part in text.split(between) if part.strip()]

    return read


def set_of(names: Sequence[str], what: str, separator: str) -> Callable[[Any], Sets]:
    """Return a reader that turns separated names, at least one, into a row of 0 and 1."""
    read_several = several_of(names, what, separator)

    def read(value: Any) -> Sets:
        members = read_several(value)
        if not members:
            fix = "name all that may be true, or all of them if nothing is known"
            raise UnreadableError(f"at least one {what}", fix)
        row = np.zeros(len(names), np.bool_)
        row[members] = True
        return row

    return read


def mark(missing: Sequence[str] = (), uncertain: Sequence[str] = (), read_as: str = "refuse") -> Callable[[Any], int]:
    """Return a reader of marks: 1 means present, 0 absent, a blank or a `missing` value not annotated.

    An `uncertain` value is read according to the policy `read_as`.
    """
    unknown = {canonical(value) for value in missing} | {""}
    unsure = {canonical(value) for value in uncertain}
    policies = {"unknown": UNKNOWN, "positive": 1, "negative": 0}

    def read(value: Any) -> int:
        name = canonical(value)
        if name in unknown:
            return UNKNOWN
        if name in unsure and read_as in policies:
            return policies[read_as]
        if name in unsure:
            raise UnreadableError("no uncertain value (read_as is refuse)", "resolve it, or choose another policy")
        if name not in ("0", "1"):
            raise UnreadableError(
                "1 (present), 0 (absent) or a blank (not annotated)", "or declare it: missing, uncertain"
            )
        return int(name)

    return read


def canonical(value: Any) -> str:
    """Return a value as a name, with numbers in a canonical form: 1.0 is 1."""
    name = word(value)
    return word(float(name)) if NUMBER.fullmatch(name) and math.isfinite(float(name)) else name
