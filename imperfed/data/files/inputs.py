"""Reading a model's inputs from a table: columns of numbers and categories, images, sparse features, or one array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.data import from_arrays
from imperfed.data.files.blanks import column_fills, fill_of, indicated, missing_in, width
from imperfed.data.files.cells import NUMBER, one_of, read_values, set_of, text_of
from imperfed.data.files.declaration import Declaration, Inputs, SensitiveColumn
from imperfed.data.files.image_files import image_column, read_images
from imperfed.data.files.number_cells import Blanks, is_blank, numbers
from imperfed.data.files.problems import Problems, shown
from imperfed.data.files.row_groups import in_row_groups, read_row_groups
from imperfed.data.files.table import FileTable, Role
from imperfed.data.sparse import pack

LARGEST = float(np.finfo(np.float32).max)


def wanted_inputs(declaration: Declaration) -> dict[str, Role]:
    """Return the columns that make up the inputs, including that of the sensitive attribute."""
    inputs, attribute = declaration.inputs, declaration.attribute
    wanted: dict[str, Role] = dict.fromkeys(inputs.numeric, "number")
    wanted |= dict.fromkeys(inputs.categorical, "code")
    wanted |= dict.fromkeys(filter(None, (inputs.image, inputs.sparse, inputs.array)), "text")
    return wanted if attribute is None else wanted | {attribute.column: "code"}


def read_inputs(table: FileTable, declaration: Declaration, problems: Problems) -> Tensor | None:
    """Return the inputs, float32 [n, ...]; None if their columns are missing."""
    inputs = declaration.inputs
    if inputs.size:
        one = _one_per_row(table, image_column(table, inputs), problems)
        return read_images(table, inputs, problems) if one else None
    if in_row_groups(table.file, declaration):
        return read_row_groups(table, declaration, _table, problems)
    if inputs.sparse:
        return _sparse(table, inputs, problems)
    x = _array(table, inputs.array, problems) if inputs.array else _table(table, inputs, problems)
    return x if declaration.attribute is None else _with_groups(x, table, declaration.attribute, problems)


def _table(table: FileTable, inputs: Inputs, problems: Problems) -> Tensor:
    """Return numbers, one column of 0 and 1 per category, and one per column whose blanks are indicated.

    A blank that is to be filled is NaN, in all columns of its categories.
    """
    x = np.zeros((table.rows, width(inputs)), np.float32)
    for j, name in enumerate(inputs.numeric):
        blanks = Blanks(missing_in(inputs, name), bool(fill_of(inputs, name)))
        x[:, j] = numbers(table, name, blanks, problems)
    first = len(inputs.numeric)
    for column, names in inputs.categorical.items():
        codes = read_values(table, column, _category(inputs, column, names), 0, problems)
        if codes is not None:  # absent columns were noted
            np.take(_one_hot(len(names)), codes, 0, out=x[:, first : first + len(names)])
        first += len(names)
    blank = {fill.column: fill.first for fill in column_fills(inputs)}
    for column in indicated(inputs):
        x[:, first] = np.isnan(x[:, blank[column]])
        first += 1
    return torch.from_numpy(x)


def _category(inputs: Inputs, column: str, names: Sequence[str]) -> Callable[[Any], int]:
    """Return a reader of categories; a blank that is to be filled comes after the last one."""
    read, missing = one_of(names, "category"), missing_in(inputs, column)
    if not fill_of(inputs, column):
        return read
    return lambda value: len(names) if is_blank(value, missing) else read(value)


def _one_hot(categories: int) -> npt.NDArray[np.float32]:
    """Return one row per category, and one of NaN for blanks."""
    return np.concatenate([np.eye(categories, dtype=np.float32), np.full((1, categories), np.nan, np.float32)])


def _with_groups(x: Tensor | None, table: FileTable, attribute: SensitiveColumn, problems: Problems) -> Tensor | None:
    """Return the inputs with one more column per group."""
    read = set_of(attribute.values, "group", attribute.separator)
    members = read_values(table, attribute.column, read, np.zeros(len(attribute.values), np.bool_), problems)
    if x is not None and x.ndim != 2:
        found = f"inputs of shape {tuple(x.shape[1:])}"
        problems.add(table.file, None, attribute.column, found, "a table of features", "leave [attribute] out")
        return None
    return None if x is None or members is None else torch.cat([x, torch.from_numpy(members).float()], 1)


def _array(table: FileTable, name: str, problems: Problems) -> Tensor | None:
    column = table.columns.get(name)
    if column is None:
        return None
    array = column if isinstance(column, np.ndarray) else column.to_numpy(zero_copy_only=False)
    if array.dtype.kind not in "biuf" or array.ndim < 2 or not array.size:
        found = f"{array.dtype} of shape {array.shape}"
        problems.add(table.file, None, name, found, "numbers, [n, ...], in an .npz file", "write them as one array")
        return None
    try:
        x = from_arrays.inputs(array, name)
    except DataError as error:
        problems.add(table.file, None, name, str(error), "channels first", "move the last axis")
        return None
    flat = x.flatten(1)
    for row in (~flat.isfinite().all(1)).nonzero().flatten().tolist():
        position = int((~flat[row].isfinite()).nonzero()[0])
        found = f"{float(flat[row, position])} at position {position} of the row"
        table.note(problems, row, name, found, "finite numbers", "fill in the value, or drop the row")
    return x


def _one_per_row(table: FileTable, name: str, problems: Problems) -> bool:
    """Return whether there is such a column with one value per row; a matrix is noted."""
    column = table.columns.get(name)
    if isinstance(column, np.ndarray):
        found = f"{column.dtype} of shape {column.shape}"
        problems.add(table.file, None, name, found, "one text per row", "use `array` for a matrix of inputs")
        return False
    return column is not None


# -- sparse features ---------------------------------------------------------------------------------------------------


def _sparse(table: FileTable, inputs: Inputs, problems: Problems) -> Tensor | None:
    """Return sparse rows [n, 2, L] in the format of `imperfed.data.sparse`."""
    column = text_of(table, inputs.sparse, problems)
    if column is None:
        return None
    pairs = _pairs(column, inputs.features)
    if pairs is None:
        pairs = _pairs_one_by_one(table, inputs, column, problems)
    return pack(*pairs, inputs.features, str(table.file))


def _pairs(column: Any, features: int) -> tuple[Any, Any, Any] | None:
    """Return where each row begins, all indices and all values; None if any cell is malformed."""
    import pyarrow
    from pyarrow import compute

    try:
        column = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
        column = compute.utf8_trim_whitespace(column.fill_null(""))
        words = compute.utf8_split_whitespace(column)
        counts = compute.list_value_length(words).to_numpy(zero_copy_only=False)
        flat = words.flatten()
        keep = compute.not_equal(flat, "")  # a blank cell yields one empty word
        blank = compute.equal(column, "").to_numpy(zero_copy_only=False)
        pairs = compute.split_pattern(flat.filter(keep), ":")
        if not compute.all(compute.equal(compute.list_value_length(pairs), 2)).as_py() and len(pairs):
            return None
        at = compute.list_element(pairs, 0).cast(pyarrow.int64()).to_numpy(zero_copy_only=False)
        values = compute.list_element(pairs, 1).cast(pyarrow.float64()).to_numpy(zero_copy_only=False)
    except (pyarrow.ArrowException, TypeError):
        return None
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    if not (np.isfinite(values).all() and ((at >= 0) & (at < features)).all()):
        return None
    first = np.concatenate([[0], np.cumsum(np.where(blank, 0, counts))]).astype(np.int64)
    row = np.repeat(np.arange(len(first) - 1), np.diff(first))
    return None if len(np.unique(row * features + at)) < len(at) else (first, at, values)


def _pairs_one_by_one(table: FileTable, inputs: Inputs, column: Any, problems: Problems) -> tuple[Any, Any, Any]:
    """Return the same; the first malformed pair of each row is noted."""
    expected = f"index:value with an index from 0 to {inputs.features - 1}, each once, and finite values"
    first, at, values = [0], [], []
    for row, cell in enumerate(column.to_pylist()):
        seen: dict[int, float] = {}
        for pair in (cell or "").split():
            index, _, value = pair.partition(":")
            right = index.isascii() and index.isdecimal() and int(index) < inputs.features and int(index) not in seen
            if not (right and NUMBER.fullmatch(value) and abs(float(value)) <= LARGEST):
                table.note(problems, row, inputs.sparse, shown(pair), expected, "fix the pair")
                break
            seen[int(index)] = float(value)
        at += [*seen]
        values += [*seen.values()]
        first.append(len(at))
    return np.array(first), np.array(at, np.int64), np.array(values, np.float32)
