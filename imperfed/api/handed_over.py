"""Data that are handed over in memory: tables, arrays and datasets of any library, as tables of pyarrow columns.

No library of tables is imported here: a table is recognised by what it can do, or by the name of its package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from imperfed.core.errors import UsageError
from imperfed.data.files.cells import word
from imperfed.data.files.memory import MemoryTable

FORMS = "a table (pandas, polars, pyarrow), {site: table}, {site: (x, labels)}, {site: torch Dataset} or a Federation"
"""What data in memory look like, for messages."""
ONE_ROW = "frame.iloc[[0]] in pandas, frame[0] in polars"
ARRAYS = ("x", "labels", "truth")
"""The names of the arrays of a site, in the order in which they are handed over."""

NEEDED = ("data", "rows")
"""What cannot be left out, by the names of arguments."""
BLANKS_OF_PANDAS = ("NAType", "NaTType")
"""The types of pandas.NA and pandas.NaT, which Arrow takes for blanks unless values of different types are mixed."""


def is_table(value: Any) -> bool:
    """Return whether a value is a table with named columns."""
    return _is_pandas(value) or any(hasattr(value, way) for way in ("__arrow_c_stream__", "to_arrow", "__dataframe__"))


def is_arrays(value: Any) -> bool:
    """Return whether a value is a pair of inputs and labels, or both with the truth."""
    return isinstance(value, tuple) and len(value) in (2, 3)


def as_memory_table(value: Any, name: str) -> MemoryTable:
    """Return a table, arrays or a dataset under the name by which messages call it; refuse one without rows."""
    table = _as_table(value, name)
    if not table.rows:
        otherwise = "" if name in NEEDED else f", or leave {name} out"
        raise UsageError(f"{name}: no rows; hand over at least one{otherwise}")
    return table


def _as_table(value: Any, name: str) -> MemoryTable:
    if is_table(value):
        return _of_table(value, name)
    if is_arrays(value):
        return _of_arrays(value, name)
    if isinstance(value, Dataset):
        return _of_dataset(value, name)
    if hasattr(value, "collect"):
        raise UsageError(f"{name}: a table that is not computed yet; hand over {name}.collect()")
    raise UsageError(f"{name}: cannot read a value of type {type(value).__name__}; hand over {FORMS}")


def as_inputs_table(value: Any, name: str) -> MemoryTable:
    """Return inputs without labels: a table, or one array."""
    if is_table(value) or is_arrays(value):
        return as_memory_table(value, name)
    x = as_array(value, name)
    return MemoryTable(name, {"x": x}, len(x), suffix=".npz")


# -- tables ------------------------------------------------------------------------------------------------------------


def _is_pandas(value: Any) -> bool:
    bases = {(base.__module__.partition(".")[0], base.__name__) for base in type(value).__mro__}
    return ("pandas", "DataFrame") in bases


def _of_table(value: Any, name: str) -> MemoryTable:
    import pyarrow

    if _is_pandas(value):
        names, index = (
            [str(column) for column in value.columns],
            column_of([str(row) if isinstance(row, tuple) else row for row in value.index]),
        )
        columns = [_pandas_column(value.iloc[:, j]) for j in range(len(names))]
        rows = len(value)
    else:
        try:
            table = _arrow_table(value)
        except (pyarrow.ArrowException, TypeError, ValueError, ImportError) as error:
            reason = str(error).partition("\n")[0]
            kind = type(value).__name__
            forms = f"a frame, such as one row of it: {ONE_ROW}" if kind == "Series" else FORMS
            raise UsageError(f"{name}: cannot read a {kind} as a table ({reason}); hand over {forms}") from None
        columns = [_without_views(column) for column in table.columns]
        names, index, rows = list(table.column_names), None, table.num_rows
    names = [column.strip() for column in names]
    if twice := sorted((column, times) for column, times in Counter(names).items() if times > 1):
        column, times = twice[0]
        raise UsageError(f"{name}: {times} columns are called {column!r}; rename all but one")
    return MemoryTable(name, dict(zip(names, columns, strict=True)), rows, index)


def _arrow_table(value: Any) -> Any:
    import pyarrow

    if isinstance(value, pyarrow.Table):
        return value
    if hasattr(value, "__arrow_c_stream__"):
        return pyarrow.table(value)
    if hasattr(value, "to_arrow"):
        return value.to_arrow()
    from pyarrow.interchange import from_dataframe

    return from_dataframe(value)


def _pandas_column(series: Any) -> Any:
    import pyarrow

    if series.dtype == object:
        return column_of(series.tolist())
    try:
        column = pyarrow.Array.from_pandas(series)
    except (pyarrow.ArrowException, TypeError):  # complex numbers, sparse columns
        return column_of(series.tolist())
    kind = column.type.value_type if pyarrow.types.is_dictionary(column.type) else None
    return column_of(series.tolist()) if isinstance(kind, pyarrow.BaseExtensionType) else column  # such as intervals


def _without_views(column: Any) -> Any:
    """Return a column whose categories are text; polars hands over views of text, for which Arrow lacks functions."""
    import pyarrow

    if not pyarrow.types.is_dictionary(column.type) or column.type.value_type != pyarrow.string_view():
        return column
    return column.cast(pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))


def column_of(cells: Sequence[Any]) -> Any:
    """Return Python values as a pyarrow column: sets and tuples as lists, values of different types as text.

    Among lists, a single value is a list of one.
    """
    import pyarrow

    plain = [_plain(cell) for cell in cells]
    if any(isinstance(cell, list) for cell in plain):
        plain = [cell if isinstance(cell, list) or not word(cell) else [cell] for cell in plain]
    try:
        return pyarrow.array(plain, from_pandas=True)
    except (pyarrow.ArrowException, TypeError, OverflowError):
        return pyarrow.array([[*map(word, cell)] if isinstance(cell, list) else word(cell) or None for cell in plain])


def _plain(cell: Any) -> Any:
    if type(cell).__name__ in BLANKS_OF_PANDAS:
        return None
    if isinstance(cell, Set):
        return sorted(map(word, cell))
    if isinstance(cell, Tensor | np.ndarray):
        return cell.tolist()
    return list(cell) if isinstance(cell, tuple) else cell


# -- arrays and datasets -----------------------------------------------------------------------------------------------


def _of_arrays(value: tuple[Any, ...], name: str) -> MemoryTable:
    parts = dict(zip(ARRAYS, value, strict=False))
    columns: dict[str, Any] = {"x": as_array(parts.pop("x"), f"{name}, x")}
    columns |= {key: _label_column(part, f"{name}, {key}") for key, part in parts.items()}
    rows = {key: len(column) for key, column in columns.items()}
    if len({*rows.values()}) > 1:
        counts = ", ".join(f"{count} rows of {key}" for key, count in rows.items())
        raise UsageError(f"{name}: {counts}; hand over as many of each, for the same examples")
    return MemoryTable(name, columns, rows["x"], suffix=".npz")


def as_array(value: Any, name: str) -> Any:
    """Return inputs as a NumPy array [n, ...]."""
    if _is_sparse(value):
        dense = "to_dense()" if isinstance(value, Tensor) else "toarray()"
        raise UsageError(f"{name}: a sparse matrix; hand over a dense one, which its method {dense} returns")
    if isinstance(value, str | Mapping | Dataset):
        kind = type(value).__name__
        raise UsageError(f"{name}: found a value of type {kind}, expected numbers; hand over an array [n, ...]")
    try:
        array = as_numpy(value)
    except ValueError:
        raise UsageError(f"{name}: rows of different lengths; hand over one array [n, ...]") from None
    if array.ndim < 2 or array.dtype.kind not in "biuf":
        found = f"{array.dtype} of shape {array.shape}"
        raise UsageError(f"{name}: found {found}, expected numbers, one row per example; hand over an array [n, ...]")
    return array


def _is_sparse(value: Any) -> bool:
    """Return whether a value is a sparse matrix of SciPy or a sparse tensor."""
    return value.layout != torch.strided if isinstance(value, Tensor) else hasattr(value, "toarray")


def as_numpy(value: Any) -> Any:
    """Return a tensor, or whatever NumPy takes for an array, as an array; bfloat16, which NumPy lacks, as float32."""
    if not isinstance(value, Tensor):
        return np.asarray(value)
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy(force=True)


def _label_column(value: Any, name: str) -> Any:
    """Return labels as a column of one value or one set per row, or as a matrix with one column per class."""
    import pyarrow

    if is_table(value) and hasattr(value, "columns"):
        return _columns_of_labels(_of_table(value, name))
    if isinstance(value, Tensor | np.ndarray) and value.ndim > 1:
        return as_numpy(value)
    if isinstance(value, Tensor):
        return pyarrow.array(as_numpy(value))
    return column_of(list(value.tolist() if hasattr(value, "tolist") else value))


def _columns_of_labels(table: MemoryTable) -> Any:
    """Return the only column of a table, or a matrix of the marks in its columns, one per class."""
    import pyarrow

    columns = [*table.columns.values()]
    if len(columns) == 1:
        return columns[0]
    if all(pyarrow.types.is_boolean(column.type) and not column.null_count for column in columns):
        return np.column_stack([column.to_numpy(zero_copy_only=False) for column in columns])
    try:
        marks = [column.cast(pyarrow.float64()) for column in columns]
    except pyarrow.ArrowException:
        raise UsageError(
            f"{table}: {len(columns)} columns, not all of numbers; hand over one column of classes, or one per class, "
            "of 1, 0 and blanks"
        ) from None
    return np.column_stack([column.to_numpy(zero_copy_only=False) for column in marks])


def _of_dataset(value: Any, name: str) -> MemoryTable:
    if isinstance(value, IterableDataset) or not hasattr(value, "__len__"):
        raise UsageError(f"{name}: a dataset without a length; hand over a map-style Dataset, with __len__")
    examples = [value[row] for row in range(len(value))]
    if not all(isinstance(example, tuple | list) and len(example) == 2 for example in examples):
        raise UsageError(f"{name}: its examples are not pairs; let the dataset return (x, label)")
    if not examples:
        raise UsageError(f"{name}: a dataset without examples; add some, or leave the site out")
    x = _stacked([x for x, _ in examples], "inputs", name)
    labels = [label for _, label in examples]
    if all(isinstance(label, Tensor | np.ndarray) and label.ndim for label in labels):
        return _of_arrays((x, _stacked(labels, "labels", name)), name)
    plain = [label.item() if isinstance(label, Tensor | np.generic) else label for label in labels]
    return _of_arrays((x, plain), name)


def _stacked(values: Sequence[Any], what: str, name: str) -> Any:
    """Return what a dataset holds for every example as one array; refuse values of different shapes."""
    arrays = list(map(as_numpy, values))
    if len(shapes := {array.shape for array in arrays}) > 1:
        few = ", ".join(map(str, sorted(shapes)[:3]))
        raise UsageError(f"{name}: {what} of different shapes, such as {few}; let the dataset return one shape")
    return np.stack(arrays)


def by_site(value: Any, argument: str) -> dict[str, MemoryTable]:
    """Return the tables by the names of their sites; "" names one table for all of them."""
    if not isinstance(value, Mapping):
        return {"": as_memory_table(value, argument)}
    if not value:
        raise UsageError(f"{argument}={{}}: no sites; hand over {FORMS}")
    if all(isinstance(part, list | np.ndarray | Tensor) for part in value.values()):
        raise UsageError(f"{argument}: a dict of columns; make a table of it, or hand over {{site: (x, labels)}}")
    names = [_site_name(site) for site in value]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{argument}: two sites are called {twice!r}; rename one of them")
    return {_site_name(site): as_memory_table(part, f"{argument}[{site!r}]") for site, part in value.items()}


def _site_name(key: Any) -> str:
    """Return a key as the name of a site; groups of a table that is grouped by one column may have tuples of one."""
    return str(key[0] if isinstance(key, tuple) and len(key) == 1 else key)


def is_in_memory(value: Any) -> bool:
    """Return whether data are handed over in memory, and not as a name or a path."""
    if isinstance(value, Mapping | Dataset | tuple | list | np.ndarray | Tensor):
        return True
    return is_table(value) or hasattr(value, "collect")
