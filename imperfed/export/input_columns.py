"""The names of what a model's inputs hold, column by column, for those who call it without imperfed."""

from __future__ import annotations

from imperfed.data.files.blanks import indicated
from imperfed.data.files.declaration import FILE, Declaration, read_declaration
from imperfed.results.folder import RunFolder


def input_columns(folder: RunFolder) -> list[str]:
    """Return the columns of an input in their order; empty if the inputs are not columns of a table.

    A categorical column becomes one column of 0 and 1 per category, and a column whose blanks are indicated one more.
    """
    path = folder.path / FILE
    return _columns(read_declaration(path)) if path.exists() else []


def _columns(declaration: Declaration) -> list[str]:
    inputs, attribute = declaration.inputs, declaration.attribute
    if inputs.size or inputs.sparse or inputs.array:
        return []
    columns = [*inputs.numeric]
    columns += [f"{column} = {name}" for column, names in inputs.categorical.items() for name in names]
    columns += [f"{column} is blank" for column in indicated(inputs)]
    return columns + ([] if attribute is None else [f"{attribute.column} = {name}" for name in attribute.values])
