"""What a site may know about its examples: six kinds of labels, each a type.

The constructors are cheap and check nothing, since a batch is built at every local step; `check` is called once, where
data enters a federation. True labels never appear here: they live in `imperfed.data.oracle`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from imperfed.core.errors import DataError


@dataclass(frozen=True)
class Labels(ABC):
    """Labels of n examples over a declared space of classes, stored as one tensor whose first dimension is n."""

    kind: ClassVar[str]
    values: Tensor
    classes: int

    def __len__(self) -> int:
        return self.values.shape[0]

    def take(self, rows: Tensor) -> Self:
        """The labels of these rows (fixed shape: one output row for every index)."""
        return type(self)(self.values.index_select(0, rows), self.classes)

    def between(self, start: int, stop: int) -> Self:
        """The labels of the rows start .. stop - 1, as a view."""
        return type(self)(self.values[start:stop], self.classes)

    def to(self, device: torch.device) -> Self:
        """The same labels on a device."""
        return type(self)(self.values.to(device), self.classes)

    @staticmethod
    def probabilities(logits: Tensor) -> Tensor:
        """The probability of each class: they compete, unless the kind says otherwise."""
        return torch.softmax(logits, -1)

    @abstractmethod
    def check(self, where: str) -> None:
        """Raise `DataError` naming the first row that breaks this kind's invariants."""

    def _check_matrix(self, where: str, dtype: torch.dtype) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != self.classes or self.values.dtype != dtype:
            raise DataError(
                f"{where}: {self.kind} labels must be a {dtype} matrix with one column a class ({self.classes}); "
                f"found {self.values.dtype} of shape {tuple(self.values.shape)}"
            )


@dataclass(frozen=True)
class OneClass(Labels):
    """One class an example: int64 values [n]."""

    def check(self, where: str) -> None:
        if self.values.ndim != 1 or self.values.dtype != torch.int64:
            raise DataError(f"{where}: {self.kind} labels must be an int64 vector; found {tuple(self.values.shape)}")
        wrong = ((self.values < 0) | (self.values >= self.classes)).nonzero()
        if len(wrong):
            row = int(wrong[0])
            raise DataError(
                f"{where}, row {row}: label {int(self.values[row])} is outside the label space 0 .. {self.classes - 1}"
            )


@dataclass(frozen=True)
class Exact(OneClass):
    """One label an example, right or wrong."""

    kind: ClassVar[str] = "exact"

    def told_as(self, kind: type[Labels]) -> Labels:
        """The same labels in another kind: the class itself, or a row of a matrix in which it alone is present."""
        if issubclass(kind, OneClass):
            return kind(self.values, self.classes)
        dtype = {Annotated: torch.int8, Memberships: torch.float32}.get(kind, torch.bool)
        return kind(torch.eye(self.classes, dtype=dtype, device=self.values.device)[self.values], self.classes)


@dataclass(frozen=True)
class Positive(OneClass):
    """One class known to be present; nothing is known of the others."""

    kind: ClassVar[str] = "positive"


@dataclass(frozen=True)
class Candidates(Labels):
    """A set of candidate labels an example, the true one among them: bool values [n, C]."""

    kind: ClassVar[str] = "candidates"

    def check(self, where: str) -> None:
        self._check_matrix(where, torch.bool)
        empty = (~self.values.any(1)).nonzero()
        if len(empty):
            raise DataError(
                f"{where}, row {int(empty[0])}: the candidate set is empty ({len(empty)} such rows in all); "
                "give every example at least one candidate, or all classes where nothing is known"
            )

    def uniform(self) -> Tensor:
        """Equal confidence 1/|S| in every candidate, 0 elsewhere: float [n, C]."""
        mask = self.values.to(torch.get_default_dtype())
        return mask / mask.sum(1, keepdim=True)


@dataclass(frozen=True)
class Memberships(Labels):
    """How far each class is a candidate, 0 .. 1, some class above 0: float32 values [n, C]."""

    kind: ClassVar[str] = "memberships"

    def check(self, where: str) -> None:
        self._check_matrix(where, torch.float32)
        wrong = ((self.values < 0) | (self.values > 1)).any(1) | ~(self.values > 0).any(1)
        if wrong.any():
            raise DataError(
                f"{where}, row {int(wrong.nonzero()[0])}: memberships must lie in 0 .. 1, and not all may be 0"
            )


@dataclass(frozen=True)
class Positives(Labels):
    """Classes known to be present; nothing is known of the others: bool values [n, C]."""

    kind: ClassVar[str] = "positives"

    def check(self, where: str) -> None:
        self._check_matrix(where, torch.bool)


@dataclass(frozen=True)
class Annotated(Labels):
    """Several classes an example, each present (1), absent (0) or not annotated (-1): int8 values [n, C]."""

    kind: ClassVar[str] = "annotated"

    @staticmethod
    def probabilities(logits: Tensor) -> Tensor:
        """The probability that each class is present, whatever the others are."""
        return torch.sigmoid(logits)

    def check(self, where: str) -> None:
        self._check_matrix(where, torch.int8)
        wrong = ((self.values < -1) | (self.values > 1)).nonzero()
        if len(wrong):
            row, column = (int(i) for i in wrong[0])
            raise DataError(
                f"{where}, row {row}, class {column}: {int(self.values[row, column])} is none of "
                "1 (present), 0 (absent), -1 (not annotated)"
            )


KINDS: dict[str, type[Labels]] = {k.kind: k for k in (Exact, Candidates, Memberships, Positive, Positives, Annotated)}
