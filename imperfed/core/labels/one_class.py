"""Labels that name one class per example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.core.labels.base import RAREST, Labels
from imperfed.core.labels.label_cells import Cells
from imperfed.core.labels.validity import Validity


@dataclass(frozen=True)
class OneClass(Labels):
    """One class per example: int64 values [n]."""

    dtype: ClassVar[torch.dtype] = torch.int64
    from_cells: ClassVar[bool] = True

    def check(self, where: str) -> None:
        if self.values.ndim != 1 or self.values.dtype != self.dtype:
            raise DataError(f"{where}: {self.kind} labels must be an int64 vector; found {tuple(self.values.shape)}")
        wrong = ((self.values < 0) | (self.values >= self.classes)).nonzero()
        if len(wrong):
            row = int(wrong[0])
            raise DataError(
                f"{where}, row {row}: label {int(self.values[row])} is outside the label space 0 .. {self.classes - 1}"
            )

    @classmethod
    def empty(cls, classes: int) -> Self:
        return cls(torch.empty(0, dtype=cls.dtype), classes)

    @classmethod
    def from_classes(cls, y: Tensor, classes: int) -> Self:
        return cls(y, classes)

    @classmethod
    def validity_name(cls) -> str:
        return "accuracy"

    def validity(self, logits: Tensor) -> Validity:
        """Return the share of rows whose highest logit is that of their label, right or wrong."""
        return Validity.of(float((logits.argmax(1) == self.values).sum()), float(len(self)))

    def log_likelihood(self, probability: Tensor) -> Tensor:
        own = self.normalised(probability).gather(1, self.values[:, None]).flatten()
        return own.clamp(min=RAREST).log()

    @classmethod
    def unreadable(cls, classes: int) -> int:
        return -1

    @classmethod
    def read_cell(cls, cell: Any, cells: Cells) -> int:
        return cells.class_in(cell)

    def mentions(self) -> None:
        return None

    def weighted_examples(self) -> tuple[Tensor, Tensor, Tensor]:
        return torch.arange(len(self)), self.values, torch.ones(len(self))

    def marks(self) -> Tensor:
        return torch.nn.functional.one_hot(self.values, self.classes).to(torch.int8)

    def written(self, classes: Sequence[str]) -> list[str]:
        return [classes[c] for c in self.values.tolist()]
