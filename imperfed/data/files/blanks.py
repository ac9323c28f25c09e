"""Blank inputs as declared: which cells are blank, and what takes their place, column by column."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from imperfed.data.files.declaration import Inputs
from imperfed.data.fill import STATISTICS, ColumnFill

ANY = "*"
"""Stands for any characters of the name of a column."""

Entry = TypeVar("Entry", str, tuple[str, ...])


def matches(pattern: str, name: str) -> bool:
    """Return whether a name fits a pattern, in which each `*` stands for any characters."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split(ANY))), name, re.DOTALL) is not None


def missing_in(inputs: Inputs, column: str) -> tuple[str, ...]:
    """Return the values of a column that mean a blank."""
    return _of_column(inputs.missing, column, ())


def fill_of(inputs: Inputs, column: str) -> str:
    """Return what fills a column's blanks; empty if they are refused."""
    return _of_column(inputs.fill, column, "")


def _of_column(declared: Entry | Mapping[str, Entry], column: str, nothing: Entry) -> Entry:
    """Return what is declared about a column: under its own name, or under the first pattern that it fits."""
    if not isinstance(declared, Mapping):
        return declared
    if column in declared:
        return declared[column]
    return next((entry for key, entry in declared.items() if ANY in key and matches(key, column)), nothing)


def common_words(inputs: Inputs) -> tuple[str, ...]:
    """Return the values that mean a blank in all columns of numbers; elsewhere each cell is decided by itself."""
    lists = [{*missing_in(inputs, column)} for column in inputs.numeric]
    return tuple(sorted(set.intersection(*lists))) if lists else ()


def indicated(inputs: Inputs) -> tuple[str, ...]:
    """Return the columns with one more column of 0 and 1 each, which says where they are blank."""
    columns = (*inputs.numeric, *inputs.categorical)
    return tuple(column for column in columns if inputs.indicators and fill_of(inputs, column))


def width(inputs: Inputs) -> int:
    """Return the number of columns that a model sees of a table, without those of a sensitive attribute."""
    return len(inputs.numeric) + sum(map(len, inputs.categorical.values())) + len(indicated(inputs))


def column_fills(inputs: Inputs) -> tuple[ColumnFill, ...]:
    """Return how blanks are filled, with the places of the columns among the inputs."""
    fills, first = [], 0
    for column, names in (*((name, None) for name in inputs.numeric), *inputs.categorical.items()):
        end = first + (1 if names is None else len(names))
        if how := fill_of(inputs, column):
            fills.append(_column_fill(column, first, end, how, names))
        first = end
    return tuple(fills)


def _column_fill(column: str, first: int, end: int, how: str, names: Sequence[str] | None) -> ColumnFill:
    if names is None:
        return ColumnFill(column, first, end, how, () if how in STATISTICS else (float(how),))
    if how in names:
        return ColumnFill(column, first, end, how, tuple(float(name == how) for name in names))
    return ColumnFill(column, first, end, "mode")
