"""The rows of one file: inputs, labels and ids, and the truth, which is for evaluation only."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from imperfed.core.labels import Labels
from imperfed.data.files.cells import codes_of, encoded, one_of, read_values, text_of, word
from imperfed.data.files.declaration import Declaration
from imperfed.data.files.dialect import Dialect
from imperfed.data.files.inputs import read_inputs, wanted_inputs
from imperfed.data.files.labelled import (
    label_columns,
    note_contradictions,
    read_labels,
    read_truth,
    scattered_columns,
    true_labels,
    truth_columns,
    wanted_labels,
)
from imperfed.data.files.memory import Source
from imperfed.data.files.problems import LINED, Problems, shown
from imperfed.data.files.row_groups import in_row_groups, note_unlazy
from imperfed.data.files.site_names import name_trouble
from imperfed.data.files.table import IMAGE, FileTable, Role, Wanted, read_table
from imperfed.data.files.undeclared import UndeclaredText
from imperfed.data.row_names import RowNames

SITE, CLEAN, PUBLIC, NEW = "site", "clean", "public", "new"
"""What a file is for: rows of sites; rows whose labels are true; inputs only; inputs and ids to predict."""


@dataclass(frozen=True)
class FileRows:
    """Examples as a file holds them, not standardised."""

    table: FileTable
    x: Tensor
    """float32 [n, ...]; the groups of a sensitive attribute are the last columns."""
    labels: Labels | None
    """None for public inputs and for clean rows, for which only `truth` matters."""
    truth: Tensor | None
    """For evaluation: int64 [n], or int8 [n, C] if rows may have several classes."""
    group: Tensor | None
    """For evaluation: the true sensitive group of every row, int64 [n], if a column names it."""
    at: npt.NDArray[np.int64]
    """The positions of the rows in the table."""
    names: Any = None
    """The ids of all rows of the table, as a pyarrow array of text; None: rows are named by their numbers."""
    together: npt.NDArray[np.str_] | None = None
    """What every row belongs to, such as a patient, if a column names it."""
    features: int = 0
    """The number of features of sparse rows; 0 if they are not sparse."""

    def __len__(self) -> int:
        return len(self.x)

    @property
    def sparse(self) -> bool:
        """Whether inputs are sparse rows, [n, 2, L], whose length may differ between files."""
        return bool(self.features)

    def ids(self) -> RowNames:
        """Return a name for every row."""
        if self.names is None:
            return RowNames.numbered(torch.from_numpy(self.at))
        names = self.names.combine_chunks() if hasattr(self.names, "chunks") else self.names
        return RowNames(names.take(self.at))

    def place(self, row: int) -> tuple[Source, int | None]:
        """Return the file and the line or row of an example; a text file is read again for it."""
        return self.table.numbered.at(int(self.at[row]))

    def take(self, rows: npt.NDArray[np.int64]) -> FileRows:
        """Return the chosen rows."""
        chosen = torch.from_numpy(rows)
        truth, group = (None if t is None else t[chosen] for t in (self.truth, self.group))
        labels = None if self.labels is None else self.labels.take(chosen)
        together = None if self.together is None else self.together[rows]
        return replace(
            self, x=self.x[chosen], labels=labels, truth=truth, group=group, at=self.at[rows], together=together
        )


def read_rows(
    path: Source,
    declaration: Declaration,
    part: str,
    problems: Problems,
    site: str = "",
    before: UndeclaredText | None = None,
) -> FileRows | None:
    """Return the rows of one table, of this site if it is named; None if anything is wrong with it.

    `before`: the file, if it was read already. A text file with problems is read again to find their line numbers.
    """
    wanted, spare = _wanted(declaration, part, path)
    if isinstance(path, Path) and _is_misplaced(path, declaration, problems):
        return None
    note_unlazy(path, declaration, problems)
    for slowly in (False, True):
        noted = Problems()
        unsorted, dialect = part in (PUBLIC, NEW), Dialect.of(declaration, site)
        table = None if before is None or slowly else before.table(wanted, dialect, spare)
        table = table or read_table(path, wanted, dialect, noted, spare, slowly, unsorted)
        rows = None if table is None else _convert(table, declaration, part, noted)
        if not noted or table is None or table.lines is not None or path.suffix.lower() not in LINED:
            break
    problems.take(noted)
    _free_unused()
    return None if noted or rows is None else replace(rows, table=_without_inputs(rows.table, declaration))


def _free_unused() -> None:
    """Give back the memory that pyarrow keeps for a next table, of which there may be none."""
    import pyarrow

    pyarrow.default_memory_pool().release_unused()


def _without_inputs(table: FileTable, declaration: Declaration) -> FileTable:
    """Return the table without the columns that are inputs now, which are the most of it."""
    converted = {*declaration.inputs.numeric, declaration.inputs.sparse, declaration.inputs.array}
    return replace(table, columns={name: c for name, c in table.columns.items() if name not in converted})


def _is_misplaced(path: Path, declaration: Declaration, problems: Problems) -> bool:
    """Return whether a folder stands where a file is declared, or the reverse, and note it if so."""
    folder = os.path.isdir(path)  # False, not an error, for an invalid path
    if folder == declaration.inputs.in_folders or not os.path.exists(path):
        return False
    found, expected = ("a folder", "a file") if folder else ("a file", "a folder of images by class")
    problems.add(path, None, None, found, expected, "fix the path, or write inputs.image for a column of paths")
    return True


def _wanted(declaration: Declaration, part: str, path: Source) -> tuple[Wanted, frozenset[str]]:
    """Return the columns to read, and those that a file may lack."""
    wanted: dict[str, Role] = {} if in_row_groups(path, declaration) else wanted_inputs(declaration)
    if part == PUBLIC:
        return wanted, frozenset()
    ids: dict[str, Role] = {declaration.id: "text"} if declaration.id else {}
    if part == NEW:  # rows to predict are numbered where they have no ids
        return wanted | ids, frozenset(ids)
    labels, attribute = declaration.labels, declaration.attribute
    wanted |= wanted_labels(labels)
    group = attribute.truth if attribute is not None else ""
    if group:
        wanted[group] = "code"
    if part == SITE:
        wanted |= dict.fromkeys(filter(None, (declaration.site_column, declaration.group)), "code")
        return wanted | ids, frozenset(() if declaration.site_column else scattered_columns(labels))
    return wanted, frozenset((*label_columns(labels), *truth_columns(labels), group))


def _convert(table: FileTable, declaration: Declaration, part: str, problems: Problems) -> FileRows | None:
    """Return the inputs and labels of a table; None if anything is wrong with it."""
    x = read_inputs(table, declaration, problems)
    labels = truth = group = None
    if part == SITE:
        labels = read_labels(table, declaration.labels, problems)
        truth = read_truth(table, declaration.labels, problems)
        note_contradictions(table, truth_columns(declaration.labels), labels, truth, problems)
        _note_twice(text_of(table, declaration.id, problems), table, declaration, problems)
        _note_sites(table, declaration, problems)
    elif part == CLEAN:
        truth = true_labels(table, declaration.labels, problems)
    if part in (SITE, CLEAN) and declaration.attribute is not None and declaration.attribute.truth:
        read = one_of(declaration.attribute.values, "group")
        values = read_values(table, declaration.attribute.truth, read, 0, problems)
        group = None if values is None else torch.from_numpy(values.astype(np.int64))
    together = _together(table, declaration.group, problems) if part == SITE else None
    if x is None or problems:
        return None
    image = IMAGE if table.is_folder else declaration.inputs.image
    has_ids = part in (SITE, NEW) and declaration.id in table.columns
    names = text_of(table, declaration.id if has_ids else image, problems)
    return FileRows(table, x, labels, truth, group, np.arange(table.rows), names, together, declaration.inputs.features)


def _together(table: FileTable, column: str, problems: Problems) -> npt.NDArray[np.str_] | None:
    """Return what every row belongs to; a blank is noted."""
    coded = codes_of(table, column, problems)
    if coded is None:
        return None
    codes, values = coded
    names = np.array([word(value) for value in values])[codes]
    for row in np.flatnonzero(names == "").tolist():
        table.note(problems, row, column, "a blank", "what the row belongs to", "name it, even for a single row")
    return names


def _note_twice(ids: Any, table: FileTable, declaration: Declaration, problems: Problems) -> None:
    """Note ids that are blank or that occur twice at a site."""
    from pyarrow import compute

    if ids is None:
        return
    codes, distinct = encoded(ids)
    blank = np.append(compute.equal(compute.utf8_trim_whitespace(distinct), "").to_numpy(zero_copy_only=False), True)
    for row in np.flatnonzero(blank[codes]).tolist():
        table.note(problems, row, declaration.id, "a blank", "an id", "give the row an id")
    if len(distinct) == table.rows:
        return
    sites = codes_of(table, declaration.site_column, Problems())
    pairs = codes if sites is None else codes * len(sites[1]) + sites[0]
    _, first, where = np.unique(pairs, return_index=True, return_inverse=True)
    for row in np.flatnonzero((first[where] != np.arange(table.rows)) & ~blank[codes]).tolist():
        found = f"{shown(ids[row].as_py())}, as in {table.row_name(int(first[where[row]]))}"
        table.note(problems, row, declaration.id, found, "every id once at a site", "rename or drop one of them")


def _note_sites(table: FileTable, declaration: Declaration, problems: Problems) -> None:
    """Note rows whose site has a name that is invalid as a file name."""
    coded = codes_of(table, declaration.site_column, problems)
    if coded is None:
        return
    codes, values = coded
    for code, value in enumerate(values):
        if trouble := name_trouble(word(value)):
            for row in np.flatnonzero(codes == code).tolist():
                table.note(problems, row, declaration.site_column, trouble, "a site name", "rename the site")
