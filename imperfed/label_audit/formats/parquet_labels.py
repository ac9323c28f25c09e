"""Parquet files: the same columns, types, metadata, compression and row groups; the given labels in a last column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from imperfed.core.errors import DataError
from imperfed.label_audit.formats import NewLabels, Place


def rewrite(source: Path, target: Path, place: Place, new: NewLabels) -> None:
    """Write the table with other labels, and the given ones in a last column."""
    table, how = _read(source)
    at, given = table.column_names.index(place.label), table[place.label]
    table = table.set_column(at, table.schema.field(at), relabelled(given, new, f"{source}, column {place.label}"))
    _write(table.append_column(place.given, given), target, how)


def restore(source: Path, target: Path, place: Place) -> None:
    """Put the given labels back, and drop their column."""
    table, how = _read(source)
    at = table.column_names.index(place.label)
    table = table.set_column(at, table.schema.field(at), table[place.given])
    _write(table.drop_columns([place.given]), target, how)


def relabelled(column: Any, new: NewLabels, where: str) -> Any:
    """Return a column of the same type with other values in some rows."""
    import pyarrow
    from pyarrow import compute

    column = column.unify_dictionaries().combine_chunks() if pyarrow.types.is_dictionary(column.type) else column
    if not new:
        return column
    rows = sorted(new)
    names = pyarrow.array([new[row] for row in rows])
    mask = np.zeros(len(column), np.bool_)
    mask[rows] = True
    try:
        if not pyarrow.types.is_dictionary(column.type):
            return compute.replace_with_mask(_whole(column), pyarrow.array(mask), names.cast(column.type))
        # The order of the categories stays as it is; a category that no row had is added at the end.
        values = names.cast(column.type.value_type)
        words = pyarrow.concat_arrays([column.dictionary, _absent(values, column.dictionary)])
        codes = compute.index_in(values, words).cast(column.type.index_type)
        codes = compute.replace_with_mask(column.indices, pyarrow.array(mask), codes)
        return pyarrow.DictionaryArray.from_arrays(codes, words, ordered=column.type.ordered)
    except pyarrow.ArrowException as error:
        raise DataError(f"{where}: labels cannot be written as {column.type} ({error}); store them as text") from error


def _whole(column: Any) -> Any:
    import pyarrow

    return column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column


def _absent(values: Any, words: Any) -> Any:
    from pyarrow import compute

    return values.filter(compute.invert(compute.is_in(values, words))).unique()


def _read(source: Path) -> tuple[Any, dict[str, Any]]:
    """Return the table, and how it is stored."""
    from pyarrow import parquet

    with parquet.ParquetFile(source) as file:
        group = file.metadata.row_group(0)
        compression = group.column(0).compression.replace("UNCOMPRESSED", "NONE")
        return file.read(), {"compression": compression, "row_group_size": max(group.num_rows, 1)}


def _write(table: Any, target: Path, how: dict[str, Any]) -> None:
    from pyarrow import parquet

    target.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, target, **how)
