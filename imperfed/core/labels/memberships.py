"""Candidate labels by degree, such as those of mixed examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.core.labels.candidate_sets import CandidateSets


@dataclass(frozen=True)
class Memberships(CandidateSets):
    """How far each class is a candidate, 0 .. 1, some class above 0: float32 values [n, C]."""

    kind: ClassVar[str] = "memberships"
    title: ClassVar[str] = "candidate sets by degree"
    dtype: ClassVar[torch.dtype] = torch.float32

    def check(self, where: str) -> None:
        self._check_matrix(where)
        wrong = ((self.values < 0) | (self.values > 1)).any(1) | ~(self.values > 0).any(1)
        if wrong.any():
            raise DataError(
                f"{where}, row {int(wrong.nonzero()[0])}: memberships must lie in 0 .. 1, and not all may be 0"
            )

    def weighted_examples(self) -> tuple[Tensor, Tensor, Tensor]:
        row, named = (self.values > 0).nonzero(as_tuple=True)
        return row, named, (self.values / self.values.sum(1, keepdim=True))[row, named]
