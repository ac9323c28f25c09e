"""Tables that are read one row group at a time: only Parquet files have such parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.core.lazy import LazyRows
from imperfed.data.files.blanks import width
from imperfed.data.files.declaration import Declaration, Inputs
from imperfed.data.files.memory import Source
from imperfed.data.files.problems import Problems
from imperfed.data.files.table import FileTable, note_absent
from imperfed.data.lazy.parquet_rows import ParquetRows

ReadTable = Callable[[FileTable, Inputs, Problems], Tensor]


def in_row_groups(source: Source, declaration: Declaration) -> bool:
    """Return whether the inputs of a file are read when a batch needs them, and its other columns now."""
    inputs = declaration.inputs
    table = bool(inputs.numeric or inputs.categorical)
    return inputs.lazy and table and isinstance(source, Path) and source.suffix.lower() == ".parquet"


def note_unlazy(source: Source, declaration: Declaration, problems: Problems) -> None:
    """Note a table that is declared lazy but has no parts that could be read one by one."""
    inputs = declaration.inputs
    if inputs.lazy and not inputs.size and not in_row_groups(source, declaration):
        found = "a table in memory" if not isinstance(source, Path) else f"a {source.suffix or 'folder'} file"
        expected = "Parquet for tables with lazy = true"
        problems.add(source, None, None, found, expected, "write it as Parquet, or leave lazy out")


def read_row_groups(
    table: FileTable, declaration: Declaration, read_table: ReadTable, problems: Problems
) -> Tensor | None:
    """Return lazy rows of a Parquet file; `read_table` turns columns into inputs. None if columns are missing."""
    from pyarrow import parquet

    path, inputs = table.file, declaration.inputs
    assert isinstance(path, Path)
    columns = (*inputs.numeric, *inputs.categorical)
    present = parquet.read_schema(path).names
    if note_absent(path, dict.fromkeys(columns, "number"), present, problems, frozenset()) != [*columns]:
        return None

    def convert(group: Any, first: int) -> Tensor:
        numbers = np.arange(first, first + group.num_rows)
        part = FileTable(path, group.num_rows, {name: group[name] for name in columns}, numbers)
        noted = Problems()
        x = read_table(part, inputs, noted)
        if noted:
            raise DataError("\n".join(noted.lines()))
        return x

    settings = repr(replace(inputs, lazy=False, cache=Inputs.cache))
    return LazyRows.of(ParquetRows(path, columns, width(inputs), convert, settings))
