"""Columns of numbers: blanks, decimal marks, and cells that are no number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from imperfed.data.files.cells import NUMBER, canonical, word
from imperfed.data.files.memory import MemoryTable
from imperfed.data.files.problems import Problems, shown
from imperfed.data.files.table import FileTable

Floats = npt.NDArray[np.float32]

PARTS_OF_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class Blanks:
    """Which cells of a column of numbers are blank, and whether a blank is allowed because it will be filled."""

    missing: tuple[str, ...] = ()
    """Values that mean a blank, besides empty cells and nulls."""
    filled: bool = False

    @property
    def numbers(self) -> list[float]:
        """The values that are numbers."""
        return [float(value) for value in self.missing if NUMBER.fullmatch(value)]


def numbers(table: FileTable, name: str, blanks: Blanks, problems: Problems) -> Floats:
    """Return a column of numbers as float32, NaN for blanks; what is neither a finite number nor allowed is noted."""
    column = table.columns.get(name)
    if column is None:
        return np.zeros(table.rows, np.float32)
    if isinstance(column, np.ndarray):
        found = f"{column.dtype} of shape {column.shape}"
        problems.add(table.file, None, name, found, "one number per row", "use `array` for a matrix of inputs")
        return np.zeros(table.rows, np.float32)
    if _is_of_other_kind(column.type):
        found, fix = f"a column of {column.type}", "convert it, such as a date to days since another one"
        problems.add(table.file, None, name, found, "one number per row", fix)
        return np.zeros(table.rows, np.float32)
    doubles = _floats(column, table.decimal)
    if codes := blanks.numbers:
        doubles = np.where(np.isin(doubles, codes), np.nan, doubles)
    with np.errstate(over="ignore"):
        values: Floats = doubles.astype(np.float32)
    odd = ~np.isfinite(values)
    if blanks.filled and not _is_text(column):
        odd &= ~np.isnan(values)  # blanks, of which there may be many
    for row in np.flatnonzero(odd).tolist():
        cell = column[row].as_py()
        blank = is_blank(cell, blanks.missing)
        if not (blank and blanks.filled):
            found = "a blank" if cell in (None, "") else shown(cell)
            fix = _blank_fix(table) if blank else _number_fix(cell, table)
            table.note(problems, row, name, found, "a finite number", fix)
    return values


def _is_of_other_kind(kind: Any) -> bool:
    """Return whether no cell of a column can be a number: lists, and times other than durations."""
    from pyarrow import types

    return types.is_nested(kind) or (types.is_temporal(kind) and not types.is_duration(kind))


def _is_text(column: Any) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type))


def is_blank(cell: Any, missing: Sequence[str] = ()) -> bool:
    """Return whether a cell holds nothing, NaN, or a value that means a blank."""
    name = word(cell)
    return name in ("", *missing) or canonical(name) in missing


def _blank_fix(table: FileTable) -> str:
    """Return how to fix a blank: files are declared, and tables in memory come with arguments."""
    in_memory = isinstance(table.file, MemoryTable)
    told = "train with inputs={'numeric': [...], 'fill': 'median'}" if in_memory else "write fill under [inputs]"
    return f"{told}, fill in the value, or drop the row"


def _number_fix(cell: Any, table: FileTable) -> str:
    """Return how to fix a cell that is not a number."""
    if isinstance(cell, str) and "," in cell and NUMBER.fullmatch(cell.replace(",", "")):
        return f"numbers of this file have a decimal {shown(table.decimal)}; write it like the others"
    if isinstance(cell, str):
        key = "'missing' of inputs={...}" if isinstance(table.file, MemoryTable) else "missing of [inputs]"
        return f"list it under {key} if it means a blank, or fix the cell"
    return "fill in the value, or drop the row"


def seconds(durations: Any) -> Any:
    """Return durations as numbers."""
    import pyarrow
    from pyarrow import compute

    parts = durations.cast(pyarrow.int64()).cast(pyarrow.float64(), safe=False)
    return compute.divide(parts, float(PARTS_OF_A_SECOND[durations.type.unit]))


def _floats(column: Any, decimal: str) -> npt.NDArray[np.float64]:
    """Return a column as float64, NaN where a cell is no number; durations are seconds."""
    import pyarrow

    kind = column.type
    if pyarrow.types.is_duration(kind):
        return _floats(seconds(column), decimal)
    if pyarrow.types.is_boolean(kind):
        column = column.cast(pyarrow.int8())
    if pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind):
        doubles: npt.NDArray[np.float64] = column.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)
        return doubles
    return np.array([_float(cell, decimal) for cell in column.to_pylist()], np.float64)


def _float(cell: Any, decimal: str) -> float:
    if isinstance(cell, str):
        if decimal != ".":
            cell = cell.replace(".", "_").replace(decimal, ".")  # a point is no part of such a number
        return float(cell) if NUMBER.fullmatch(cell) else math.nan
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan
