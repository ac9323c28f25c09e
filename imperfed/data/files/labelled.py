"""Reading labels and truth from a table. Truth is for evaluation only and never becomes a label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from imperfed.core.labels import KINDS, Annotated, Cells, Exact, Labels, Positives
from imperfed.core.labels.label_cells import UNKNOWN, NoteRow, UnreadableError
from imperfed.data.files.cells import canonical, mark, one_of, read_values, several_of, word
from imperfed.data.files.declaration import LabelColumns
from imperfed.data.files.problems import Problems, listed
from imperfed.data.files.table import CLASS, FileTable, Role

SEPARATORS = ("|", ";", ",")
"""Marks between classes that people use."""

Marks = npt.NDArray[np.int8] | npt.NDArray[np.float32]


def label_columns(labels: LabelColumns) -> tuple[str, ...]:
    """Return the columns of the labels; by default there is one per class, named after the class."""
    if labels.column or not KINDS[labels.kind].from_columns:
        return (labels.column,) if labels.column else ()
    return labels.columns or labels.classes


def scattered_columns(labels: LabelColumns) -> tuple[str, ...]:
    """Return the columns that a file may lack, which means that the site never annotates the class."""
    return label_columns(labels) if KINDS[labels.kind].partial and not labels.column else ()


def truth_columns(labels: LabelColumns) -> tuple[str, ...]:
    """Return the columns of the truth."""
    return labels.truth if isinstance(labels.truth, tuple) else tuple(filter(None, (labels.truth,)))


def wanted_labels(labels: LabelColumns) -> dict[str, Role]:
    """Return the columns of labels and truth."""
    return dict.fromkeys((*label_columns(labels), *truth_columns(labels)), "code")


def read_labels(table: FileTable, labels: LabelColumns, problems: Problems) -> Labels | None:
    """Return the labels of all rows as the declared kind; None if their columns are missing."""
    return _read(KINDS[labels.kind], table, labels, label_columns(labels), problems)


def read_truth(table: FileTable, labels: LabelColumns, problems: Problems) -> Tensor | None:
    """Return true classes, int64 [n], or true marks, int8 [n, C], if rows may have several; None without `truth`."""
    columns = truth_columns(labels)
    if not columns or not all(column in table.columns for column in columns):
        return None
    truth = _read(_truth_kind(labels), table, labels, columns, problems)
    return None if truth is None else truth.as_truth(_noting(table, columns[0], problems))


def true_labels(table: FileTable, labels: LabelColumns, problems: Problems) -> Tensor | None:
    """Return the truth about the rows of a clean file: `truth` if the file has it, else its labels, which are true."""
    truth, columns = truth_columns(labels), label_columns(labels)
    if truth and all(column in table.columns for column in truth):
        return read_truth(table, labels, problems)
    present = [column for column in columns if column in table.columns]
    if not table.is_folder and len(present) < (1 if scattered_columns(labels) else len(columns)):
        expected = f"true labels in {listed((*truth, *columns))}"
        problems.add(table.file, None, None, "no labels", expected, "add the columns")
        return None
    clean = _read(KINDS[labels.kind].clean_kind(), table, labels, columns, problems)
    return None if clean is None else clean.as_truth(_noting(table, listed(columns[:1]), problems))


def note_contradictions(
    table: FileTable, columns: Sequence[str], labels: Labels | None, truth: Tensor | None, problems: Problems
) -> None:
    """Note rows whose labels rule out their truth, such as a true class that is no candidate."""
    if truth is None or labels is None:
        return
    for row in labels.contradicted_by(truth).nonzero().flatten().tolist():
        found, expected = f"what the {labels.kind} labels rule out", "a truth that they allow"
        table.note(problems, row, listed(columns, 3), found, expected, "fix the label or the truth")


def _truth_kind(labels: LabelColumns) -> type[Labels]:
    """Return the kind of labels as which `truth` is read."""
    if not KINDS[labels.kind].several:
        return Exact
    in_cells = isinstance(labels.truth, str) and KINDS[labels.kind].from_cells
    return Positives if in_cells else Annotated


def _noting(table: FileTable, column: str, problems: Problems) -> NoteRow:
    """Return the function that a kind of labels calls to note a problem of one row."""

    def note(row: int, found: str, expected: str, fix: str) -> None:
        table.note(problems, row, column, found, expected, fix)

    return note


# -- one column of labels, or one column per class ---------------------------------------------------------------------


def _read(
    kind: type[Labels], table: FileTable, labels: LabelColumns, columns: Sequence[str], problems: Problems
) -> Labels | None:
    """Return labels of a kind from these columns; None if the columns are missing."""
    cells, classes = _cells(table, labels), len(labels.classes)
    if not kind.from_columns and table.is_folder:
        columns = (CLASS,)
    if _in_cells(kind, table, labels, columns):
        read = partial(kind.read_cell, cells=cells)
        rows = read_values(table, columns[0], read, kind.unreadable(classes), problems)
        return None if rows is None else kind(torch.from_numpy(rows).to(kind.dtype), classes)
    marks = _marks(kind, table, labels, columns, cells, problems)
    if marks is None:
        return None
    note = _noting(table, listed(columns, 3), problems)
    return kind(kind.from_marks(torch.from_numpy(marks), note), classes)


def _in_cells(kind: type[Labels], table: FileTable, labels: LabelColumns, columns: Sequence[str]) -> bool:
    """Return whether one column holds the whole label of a row."""
    if not (kind.from_cells and kind.from_columns):
        return kind.from_cells
    matrix = isinstance(table.columns.get(columns[0]), np.ndarray)
    return columns[0] in (labels.column, labels.truth) and not matrix


def _cells(table: FileTable, labels: LabelColumns) -> Cells:
    """Return how cells are read; an archive of arrays may give classes by number."""
    uncertain = labels.uncertain
    return Cells(
        labels.classes,
        labels.separator,
        text_in=word,
        class_in=_one_class(labels, numbered=table.file.suffix.lower() == ".npz"),
        classes_in=several_of(labels.classes, "class", labels.separator),
        mark_in=mark(labels.missing, uncertain.values, uncertain.read_as),
    )


def _one_class(labels: LabelColumns, numbered: bool) -> Callable[[Any], int]:
    """Return a reader of one class, which says what to declare where a cell names several."""
    read = one_of(labels.classes, "class", numbered)

    def read_one(value: Any) -> int:
        try:
            return read(value)
        except UnreadableError:
            if not word(value) and labels.kind == Exact.kind and not labels.truth:
                raise UnreadableError(f"one class of {listed(labels.classes)}", _fix_for_blank(labels)) from None
            parts = [[part.strip() for part in word(value).split(mark)] for mark in SEPARATORS]
            if not any(len(names) > 1 and {*names} <= {*labels.classes} for names in parts):
                raise
        fix = 'write kind = "candidates" if one of them is true, or kind = "positives" if all are'
        raise UnreadableError("one class", fix)

    return read_one


def _fix_for_blank(labels: LabelColumns) -> str:
    """Return what to do about a row without a label, of which these labels know nothing."""
    if {*map(canonical, labels.classes)} == {"0", "1"}:
        return f'drop the row, or write kind = "annotated" and columns = ["{labels.column}"]: a blank is then unknown'
    either = labels.separator.join(labels.classes[:2])
    return f'drop the row, or name the classes that it may have, as "{either}", and write kind = "candidates"'


def _marks(
    kind: type[Labels],
    table: FileTable,
    labels: LabelColumns,
    columns: Sequence[str],
    cells: Cells,
    problems: Problems,
) -> Marks | None:
    """Return one mark per class of every row, from one column per class or from a matrix."""
    read = partial(kind.read_mark, cells=cells)
    dtype: Any = np.float32 if kind.dtype.is_floating_point else np.int8
    matrix = table.columns.get(columns[0]) if len(columns) == 1 else None
    if isinstance(matrix, np.ndarray):
        flat = _flattened(table, len(labels.classes), columns[0], matrix, problems)
        values = None if flat is None else read_values(flat, columns[0], read, UNKNOWN, problems)
        return None if values is None else values.astype(dtype).reshape(matrix.shape)
    if len(columns) != len(labels.classes):
        if columns[0] in table.columns:
            expected = f"a matrix with {len(labels.classes)} columns, or one column per class"
            problems.add(table.file, None, columns[0], "one value per row", expected, "write `columns`")
        return None
    marks = np.full((table.rows, len(columns)), UNKNOWN, dtype)
    scattered = scattered_columns(labels)
    for j, column in enumerate(columns):
        if column not in table.columns and column in scattered:
            continue
        values = read_values(table, column, read, UNKNOWN, problems)
        if values is None:
            return None
        marks[:, j] = values
    return marks


def _flattened(
    table: FileTable, classes: int, name: str, matrix: npt.NDArray[Any], problems: Problems
) -> FileTable | None:
    """Return a matrix of an archive as one long column, so that each distinct value is converted only once."""
    import pyarrow

    if matrix.shape != (table.rows, classes) or matrix.dtype.kind not in "biufU":
        found = f"{matrix.dtype} of shape {matrix.shape}"
        problems.add(table.file, None, name, found, f"one row per example, {classes} columns", "write it again")
        return None
    cells = pyarrow.array(matrix.reshape(-1))
    return FileTable(table.file, matrix.size, {name: cells}, np.repeat(np.arange(table.rows), matrix.shape[1]))
