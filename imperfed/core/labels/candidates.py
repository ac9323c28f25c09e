"""Candidate labels: a set per example that holds the true class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.core.labels.candidate_sets import CandidateSets
from imperfed.core.labels.label_cells import UNKNOWN, Cells, NoteRow, UnreadableError


@dataclass(frozen=True)
class Candidates(CandidateSets):
    """A set of candidate labels per example, the true one among them: bool values [n, C]."""

    kind: ClassVar[str] = "candidates"
    title: ClassVar[str] = "candidate sets"
    dtype: ClassVar[torch.dtype] = torch.bool
    inferable: ClassVar[bool] = True
    from_cells: ClassVar[bool] = True
    from_columns: ClassVar[bool] = True

    def check(self, where: str) -> None:
        self._check_matrix(where)
        empty = (~self.values.any(1)).nonzero()
        if len(empty):
            raise DataError(
                f"{where}, row {int(empty[0])}: the candidate set is empty ({len(empty)} such rows in all); "
                "give every example at least one candidate, or all classes where nothing is known"
            )

    def uniform(self) -> Tensor:
        """Return equal confidence 1/|S| in every candidate, 0 elsewhere: float [n, C]."""
        mask = self.values.to(torch.get_default_dtype())
        return mask / mask.sum(1, keepdim=True)

    @classmethod
    def read_cell(cls, cell: Any, cells: Cells) -> npt.NDArray[np.bool_]:
        members = cells.classes_in(cell)
        if not members:
            raise UnreadableError("at least one class", "name all that may be true; all of them where nothing is known")
        return cells.row(members)

    @classmethod
    def from_marks(cls, marks: Tensor, note: NoteRow) -> Tensor:
        for row in (marks == UNKNOWN).any(1).nonzero().flatten().tolist():
            note(row, "a blank", "1 (candidate) or 0 (not)", "fill the cell")
        for row in (~(marks == 1).any(1)).nonzero().flatten().tolist():
            note(row, "an empty set", "at least one class", "mark all that may be true")
        return marks == 1

    def as_truth(self, note: NoteRow) -> Tensor:
        for row in (self.values.sum(1) > 1).nonzero().flatten().tolist():
            fix = 'write kind = "positives" if all are true, or another separator if it is one name; or declare `truth`'
            note(row, "several classes", "the one true class", fix)
        return self.values.int().argmax(1)

    def contradicted_by(self, truth: Tensor) -> Tensor:
        named = self.values.gather(1, truth[:, None].clamp(min=0)).flatten()
        return self.values.any(1) & (truth >= 0) & ~named

    def facts(self, sizes: Sequence[int]) -> dict[str, Any]:
        candidates = self.values.sum(1)
        return {
            "mean_size": float(candidates.double().mean()),
            "min_size": int(candidates.min()),
            "max_size": int(candidates.max()),
            "singletons": float((candidates == 1).double().mean()),
        }

    def given_facts(self, sizes: Sequence[int], truth: Tensor | None) -> dict[str, Any]:
        return {"sets": "given"}

    def reasons(self) -> list[str]:
        sizes = self.values.sum(1).tolist()
        return [f"best of {size} candidates" if size > 1 else "only candidate" for size in sizes]
