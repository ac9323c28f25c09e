"""Positive labels: the classes that an example is known to have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from imperfed.core.labels.base import RAREST, Labels
from imperfed.core.labels.counts import ClassCounts
from imperfed.core.labels.label_cells import Cells, NoteRow


@dataclass(frozen=True)
class Positives(Labels):
    """Classes known to be present; nothing is known about the others: bool values [n, C]."""

    kind: ClassVar[str] = "positives"
    title: ClassVar[str] = "positives only"
    dtype: ClassVar[torch.dtype] = torch.bool
    several: ClassVar[bool] = True
    ranked: ClassVar[bool] = True
    uncalibrated: ClassVar[str] = "positives never say that a class is absent"
    from_cells: ClassVar[bool] = True
    from_columns: ClassVar[bool] = True

    def check(self, where: str) -> None:
        self._check_matrix(where)

    @classmethod
    def read_cell(cls, cell: Any, cells: Cells) -> npt.NDArray[np.bool_]:
        return cells.row(cells.classes_in(cell))

    @classmethod
    def from_marks(cls, marks: Tensor, note: NoteRow) -> Tensor:
        return marks == 1

    def log_likelihood(self, probability: Tensor) -> Tensor:
        """Return the mean over a row's classes of the log of each one's share of the probability; 0 without classes."""
        share = self.normalised(probability).clamp(min=RAREST).log()
        return (share * self.values).sum(1) / self.values.sum(1).clamp(min=1)

    def as_truth(self, note: NoteRow) -> Tensor:
        return self.values.to(torch.int8)

    def contradicted_by(self, truth: Tensor) -> Tensor:
        return (self.values & (truth == 0)).any(1)

    def counts(self) -> ClassCounts:
        return positive_counts(self.values.sum(0), len(self))

    @classmethod
    def caution(cls, counts: ClassCounts) -> str:
        return "labels are positives only: a class that is not named is read as unknown, not as negative"


def positive_counts(present: Tensor, rows: int) -> ClassCounts:
    """Return the counts of labels that never say that a class is absent."""
    every = torch.full_like(present, rows)
    return ClassCounts(present, torch.zeros_like(present), every - present, present.double(), every)
