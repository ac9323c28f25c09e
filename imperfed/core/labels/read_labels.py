"""The part of a kind of labels that reads a user's files."""

from __future__ import annotations

from abc import ABC
from typing import Any, ClassVar

import torch
from torch import Tensor

from imperfed.core.labels.label_cells import Cells, NoteRow


class ReadLabels(ABC):
    """How labels of a kind are read from a user's file."""

    dtype: ClassVar[torch.dtype]
    values: Tensor

    from_cells: ClassVar[bool] = False
    """Whether one column of a user's file can hold the labels: `read_cell`."""
    from_columns: ClassVar[bool] = False
    """Whether one column per class, or a matrix, can hold the labels: `read_mark` and `from_marks`."""

    @classmethod
    def unreadable(cls, classes: int) -> Any:
        """Return a placeholder for a row that cannot be read, which is noted as a problem."""
        return torch.zeros(classes, dtype=cls.dtype).numpy()

    @classmethod
    def read_cell(cls, cell: Any, cells: Cells) -> Any:
        """Return the row of `values` that one cell holds; see `from_cells`."""
        raise NotImplementedError

    @classmethod
    def read_mark(cls, cell: Any, cells: Cells) -> float:
        """Return what a cell says about the class of its column; see `from_columns`."""
        return cells.mark_in(cell)

    @classmethod
    def from_marks(cls, marks: Tensor, note: NoteRow) -> Tensor:
        """Return `values` from the marks of every row and class; note rows that cannot be of this kind."""
        return marks

    def as_truth(self, note: NoteRow) -> Tensor:
        """Return the truth that the labels of clean rows hold: int64 [n], or int8 [n, C] where `several`."""
        return self.values

    def contradicted_by(self, truth: Tensor) -> Tensor:
        """Return the rows whose truth the labels rule out: bool [n]. An unreadable row contradicts nothing."""
        return torch.zeros(len(self.values), dtype=torch.bool)
