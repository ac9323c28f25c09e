"""Labels in doubt: the probability of every class, such as a repair finds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.core.labels.base import RAREST, Labels
from imperfed.core.labels.counts import ClassCounts

ROUNDING = 1e-4
"""How far the probabilities of a row may be from a sum of 1."""


@dataclass(frozen=True)
class Probabilities(Labels):
    """The probability that an example is of each class, together 1: float32 values [n, C]."""

    kind: ClassVar[str] = "probabilities"
    title: ClassVar[str] = "labels in doubt"
    dtype: ClassVar[torch.dtype] = torch.float32
    caption: ClassVar[str] = "rows that are most probably of the class"
    legend: ClassVar[tuple[str, str, str]] = ("most probable", "less probable", "not known")

    def check(self, where: str) -> None:
        self._check_matrix(where)
        wrong = (self.values < 0).any(1) | ~((self.values.sum(1) - 1).abs() <= ROUNDING)
        if wrong.any():
            raise DataError(f"{where}, row {int(wrong.nonzero()[0])}: probabilities must be 0 or more, and sum to 1")

    def consistent(self, probability: Tensor) -> Tensor:
        """Return the probabilities weighed by those of the label."""
        return self.normalised(probability.clamp(min=RAREST) * self.values)

    def log_likelihood(self, probability: Tensor) -> Tensor:
        """Return the expected log-likelihood of each row's class under its label."""
        return (self.normalised(probability).clamp(min=RAREST).log() * self.values).sum(1)

    def weighted_examples(self) -> tuple[Tensor, Tensor, Tensor]:
        row, named = (self.values > 0).nonzero(as_tuple=True)
        return row, named, self.values[row, named]

    def counts(self) -> ClassCounts:
        present = self.values.argmax(1).bincount(minlength=self.classes)
        rows = torch.full_like(present, len(self))
        return ClassCounts(present, rows - present, torch.zeros_like(present), self.values.double().sum(0), rows)

    def mentions(self) -> Tensor:
        """Return the most probable class of each row."""
        return torch.zeros_like(self.values, dtype=torch.bool).scatter(1, self.values.argmax(1, keepdim=True), True)
