"""Labels and truth from a table. Truth is for evaluation only and never becomes a label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from imperfed.core.labels import KINDS, Annotated, Candidates, Exact, Labels, Positives
from imperfed.data.files.cells import UNKNOWN, Marks, mark, one_of, read_values, set_of
from imperfed.data.files.declaration import LabelColumns
from imperfed.data.files.problems import Problems, listed
from imperfed.data.files.table import CLASS, FileTable, Role

SEVERAL = ("annotated", "positive", "positives")
"""Kinds of labels of rows that may have several classes; the truth of such a row is a mark for each of them."""


def label_columns(labels: LabelColumns) -> tuple[str, ...]:
    """The columns in which labels stand; those of several classes are called as the classes where nothing is said."""
    if labels.column or labels.kind in ("exact", "positive"):
        return (labels.column,) if labels.column else ()
    return labels.columns or labels.classes


def scattered_columns(labels: LabelColumns) -> tuple[str, ...]:
    """The columns that a file may lack: where labels are annotated, it says that the site never annotates the class."""
    return label_columns(labels) if labels.kind == "annotated" and not labels.column else ()


def truth_columns(labels: LabelColumns) -> tuple[str, ...]:
    """The columns in which the truth stands."""
    return labels.truth if isinstance(labels.truth, tuple) else tuple(filter(None, (labels.truth,)))


def wanted_labels(labels: LabelColumns) -> dict[str, Role]:
    """Those of labels and of truth."""
    return dict.fromkeys((*label_columns(labels), *truth_columns(labels)), "code")


def read_labels(table: FileTable, labels: LabelColumns, problems: Problems) -> Labels | None:
    """The labels of all rows as the declared kind; None where the columns are not there."""
    count, kind = len(labels.classes), KINDS[labels.kind]
    values: npt.NDArray[Any] | None
    if labels.kind in ("exact", "positive"):
        values = one_class(table, labels, CLASS if table.is_folder else labels.column, problems)
    elif labels.kind == "annotated":
        values = marks(table, labels, label_columns(labels), problems)
    else:
        values = sets(table, labels, label_columns(labels), kind is Positives, problems)
    return None if values is None else kind(torch.from_numpy(values), count)


def read_truth(table: FileTable, labels: LabelColumns, problems: Problems) -> Tensor | None:
    """True classes, int64 [n], or true marks, int8 [n, C], where rows may have several; None without `truth`."""
    columns = truth_columns(labels)
    if not columns or not all(column in table.columns for column in columns):
        return None
    if labels.kind not in SEVERAL:
        values: npt.NDArray[Any] | None = one_class(table, labels, columns[0], problems)
    elif isinstance(labels.truth, str) and labels.kind != "annotated":
        several = sets(table, labels, columns, True, problems)
        values = None if several is None else several.astype(np.int8)
    else:
        values = marks(table, labels, columns, problems)
    return None if values is None else torch.from_numpy(values)


def true_labels(table: FileTable, labels: LabelColumns, problems: Problems) -> Tensor | None:
    """The truth about rows of a clean file: `truth` where the file has it, else its labels, which are then true."""
    truth, columns = truth_columns(labels), label_columns(labels)
    if truth and all(column in table.columns for column in truth):
        return read_truth(table, labels, problems)
    there = [column for column in columns if column in table.columns]
    if not table.is_folder and len(there) < (1 if scattered_columns(labels) else len(columns)):
        expected = f"true labels in {listed((*truth, *columns))}"
        problems.add(table.file, None, None, "no labels", expected, "add the columns")
        return None
    if labels.kind == "positive":  # of clean rows all classes are named
        several = sets(table, labels, (labels.column,), True, problems)
        return None if several is None else torch.from_numpy(several.astype(np.int8))
    told = read_labels(table, labels, problems)
    if isinstance(told, Candidates):
        for row in (told.values.sum(1) > 1).nonzero().flatten().tolist():
            expected = "the one true class"
            table.note(problems, row, columns[0], "several classes", expected, "or declare `truth`")
        return told.values.int().argmax(1)
    if isinstance(told, Positives):
        return told.values.to(torch.int8)
    return None if told is None else told.values


def note_contradictions(
    table: FileTable, columns: Sequence[str], told: Labels | None, truth: Tensor | None, problems: Problems
) -> None:
    """Note where the true class is no candidate, or a class known to be present is absent in truth."""
    if truth is None or told is None or isinstance(told, Annotated | Exact):
        return
    if isinstance(told, Candidates):  # an empty set, or a truth that cannot be read, is noted already
        wrong = told.values.any(1) & (truth >= 0) & ~told.values.gather(1, truth[:, None].clamp(min=0)).flatten()
    elif isinstance(told, Positives):
        wrong = (told.values & (truth == 0)).any(1)
    else:
        wrong = (told.values >= 0) & (truth.gather(1, told.values[:, None].clamp(min=0)).flatten() == 0)
    for row in wrong.nonzero().flatten().tolist():
        found, expected = f"what the {told.kind} labels rule out", "a truth that they allow"
        table.note(problems, row, listed(columns, 3), found, expected, "mend the label or the truth")


# -- one class, sets, marks --------------------------------------------------------------------------------------------


def one_class(table: FileTable, labels: LabelColumns, column: str, problems: Problems) -> npt.NDArray[np.int64] | None:
    """The class of every row, by name, or by number in an archive of arrays."""
    read = one_of(labels.classes, "class", numbered=table.file.suffix.lower() == ".npz")
    values = read_values(table, column, read, -1, problems)
    return None if values is None else values.astype(np.int64)


def sets(
    table: FileTable, labels: LabelColumns, columns: Sequence[str], empty: bool, problems: Problems
) -> npt.NDArray[np.bool_] | None:
    """The set of every row: from one column of sets, or from one column of 0 and 1 a class."""
    if columns[0] in (labels.column, labels.truth) and not isinstance(table.columns.get(columns[0]), np.ndarray):
        read = set_of(labels.classes, "class", labels.separator, empty)
        return read_values(table, columns[0], read, np.zeros(len(labels.classes), np.bool_), problems)
    there = marks(table, labels, columns, problems)
    if there is None:
        return None
    for row in np.flatnonzero((there == UNKNOWN).any(1)).tolist() if not empty else ():
        table.note(problems, row, listed(columns, 3), "a blank", "1 (candidate) or 0 (not)", "fill the cell")
    for row in np.flatnonzero(~(there == 1).any(1)).tolist() if not empty else ():
        table.note(problems, row, listed(columns, 3), "an empty set", "at least one class", "mark all that may be true")
    present: npt.NDArray[np.bool_] = there == 1
    return present


def marks(table: FileTable, labels: LabelColumns, columns: Sequence[str], problems: Problems) -> Marks | None:
    """1, 0 or -1 for every class of every row, from one column a class or from a matrix."""
    matrix = table.columns.get(columns[0]) if len(columns) == 1 else None
    if isinstance(matrix, np.ndarray):
        return _matrix(table, labels, columns[0], matrix, problems)
    if len(columns) != len(labels.classes):
        if columns[0] in table.columns:
            expected = f"a matrix with {len(labels.classes)} columns, or one column a class"
            problems.add(table.file, None, columns[0], "one value a row", expected, "write `columns`")
        return None
    read = _mark(labels)
    found = np.full((table.rows, len(columns)), UNKNOWN, np.int8)
    scattered = scattered_columns(labels)
    for j, column in enumerate(columns):
        if column not in table.columns and column in scattered:
            continue
        values = read_values(table, column, read, UNKNOWN, problems)
        if values is None:
            return None
        found[:, j] = values
    return found


def _matrix(table: FileTable, labels: LabelColumns, name: str, matrix: Any, problems: Problems) -> Marks | None:
    """A matrix of an archive, each distinct value of which is looked at once."""
    import pyarrow

    if matrix.shape != (table.rows, len(labels.classes)) or matrix.dtype.kind not in "biufU":
        found = f"{matrix.dtype} of shape {matrix.shape}"
        problems.add(table.file, None, name, found, f"a row an example, {len(labels.classes)} columns", "write it anew")
        return None
    cells = pyarrow.array(matrix.reshape(-1))
    flat = FileTable(table.file, matrix.size, {name: cells}, np.repeat(np.arange(table.rows), matrix.shape[1]))
    values = read_values(flat, name, _mark(labels), UNKNOWN, problems)
    return None if values is None else values.astype(np.int8).reshape(matrix.shape)


def _mark(labels: LabelColumns) -> Callable[[Any], int]:
    return mark(labels.missing, labels.uncertain.values, labels.uncertain.read_as)
