"""Reasons why a column cannot be used: sites that lack it, cells that are not numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from imperfed.census.columns import SPOILT, Column
from imperfed.census.folder_layout import FolderLayout
from imperfed.data.files.cells import NUMBER, word
from imperfed.data.files.dialect import Dialect
from imperfed.data.files.memory import Source
from imperfed.data.files.problems import Problems, alike, listed, shown
from imperfed.data.files.table import read_table

MOST_CELLS = 5
"""The most cells that are listed one by one."""


def absent(layout: FolderLayout, files: Sequence[dict[str, Column]], scattered: Iterable[str]) -> list[str]:
    """Return one sentence per column that some sites lack, since a model needs its inputs at all sites.

    Columns whose names differ only in case, or by a typo, come first: they are probably one column.
    """
    sites = {path: name for name, path in layout.named().items()}
    sentences: list[str] = []
    renamed: dict[str, str] = {}
    for column in [*scattered]:
        if column in renamed.values():
            continue
        without = [sites[path] for path, columns in zip(layout.files, files, strict=True) if column not in columns]
        one = len(without) == 1
        who = f"site {without[0]}" if one else f"sites {listed(without)}"
        if other := _other_name(column, files):
            renamed[column] = other
            calls = f"{who} {'calls' if one else 'call'} it {other}"
            sentences.insert(len(renamed) - 1, f"left out: {column}; {calls}: give it one name at all sites")
        else:
            sentences.append(f"left out: {column}; {who} {'has' if one else 'have'} no such column")
    return sentences


def _other_name(column: str, files: Sequence[dict[str, Column]]) -> str:
    """Return what all files without this column call it, if their names are nearly alike; empty if they differ."""
    theirs = {alike(column, [name for name in columns if name]) for columns in files if column not in columns}
    other = next(iter(theirs))
    # A file that has both columns shows that they are two.
    return other if len(theirs) == 1 and not any({column, other} <= columns.keys() for columns in files) else ""


def first_blank(path: Source, name: str) -> str:
    """Return in words the first row of a file whose cell in this column is blank."""
    table = read_table(path, {name: "text"}, Dialect(), Problems(), slowly=True)
    if table is None or name not in table.columns:  # the reader of sites is stricter about names
        return "one row"
    return next(table.row_name(row) for row, cell in enumerate(table.columns[name].to_pylist()) if not word(cell))


def repeated(layout: FolderLayout, name: str, site: str) -> str:
    """Return the first value that occurs twice at a site, and where; `site`: the site column in one file for all."""
    for path in layout.files:
        table = read_table(path, {name: "text", site or name: "text"}, Dialect(), Problems(), slowly=True)
        if table is None or not {name, site or name} <= table.columns.keys():
            continue
        seen: dict[tuple[object, object], int] = {}
        cells = [table.columns[column].to_pylist() for column in (name, site or name)]
        for row, (cell, where) in enumerate(zip(*cells, strict=True)):
            first = seen.setdefault((cell, where), row)
            if first < row and word(cell):
                place = layout.place(path)
                return f"{shown(cell)} occurs twice ({place}, {table.row_name(first)} and {table.row_name(row)})"
    return ""


def mixed_kinds(layout: FolderLayout, files: Sequence[dict[str, Column]], column: Column) -> str:
    """Return in words that a column holds numbers at some sites and words at others; empty if it does not."""
    own = [(path, columns[column.name]) for path, columns in zip(layout.files, files, strict=True)]
    numbers = [layout.place(path) for path, c in own if c.numeric and c.known and not c.marks]
    words = [(layout.place(path), c) for path, c in own if c.odd > SPOILT * c.known]
    if not numbers or not words:
        return ""
    place, c = words[0]
    cells = listed([shown(value) for value in sorted(c.values or ()) if not NUMBER.fullmatch(value)], 3)
    return f"numbers in {listed(numbers, MOST_CELLS)}, but words in {place} ({cells}): not one kind of value"


def spoilt(layout: FolderLayout, files: Sequence[dict[str, Column]], name: str) -> str:
    """Return the cells of a column that are not numbers, and the fix; empty if the reader finds no such column."""
    cells = []
    for path, columns in zip(layout.files, files, strict=True):
        table = (
            None if columns[name].numeric else read_table(path, {name: "number"}, Dialect(), Problems(), slowly=True)
        )
        if table is None or name not in table.columns:
            continue
        place = layout.place(path)
        for row, cell in enumerate(map(str, table.columns[name].to_pylist())):
            if word(cell) and not NUMBER.fullmatch(cell.replace(",", ".") if table.decimal == "," else cell):
                cells.append(f"{shown(cell)} ({place}, {table.row_name(row)})")
    fix = "fix the cell, or leave it blank" if len(cells) == 1 else "fix the cells, or leave them blank"
    return f"numbers except for {listed(cells, MOST_CELLS)}; {fix}" if cells else ""
