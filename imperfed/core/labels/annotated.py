"""Annotations: for every class, whether an example has it, as far as it is annotated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.core.labels.base import RAREST, Labels
from imperfed.core.labels.counts import ClassCounts
from imperfed.core.labels.described_labels import SEPARATOR
from imperfed.core.labels.validity import UNKNOWN, Validity

PRESENT = 0.5
"""The probability from which a class is taken to be present."""
WORDS = {1: "present", 0: "absent", -1: ""}


@dataclass(frozen=True)
class Annotated(Labels):
    """Several classes per example, each present (1), absent (0) or not annotated (-1): int8 values [n, C]."""

    kind: ClassVar[str] = "annotated"
    title: ClassVar[str] = "missing labels"
    dtype: ClassVar[torch.dtype] = torch.int8
    several: ClassVar[bool] = True
    measurable: ClassVar[bool] = True
    partial: ClassVar[bool] = True
    inferable: ClassVar[bool] = True
    from_columns: ClassVar[bool] = True
    caption: ClassVar[str] = "rows with the class (+), without it (-) and not annotated (?)"
    legend: ClassVar[tuple[str, str, str]] = ("present", "absent", "not annotated")

    @staticmethod
    def probabilities(logits: Tensor) -> Tensor:
        """Return the probability that each class is present, whatever the others are."""
        return torch.sigmoid(logits)

    @staticmethod
    def logits(probability: Tensor) -> Tensor:
        return torch.logit(probability, eps=RAREST)

    @staticmethod
    def normalised(probability: Tensor) -> Tensor:
        return probability

    def consistent(self, probability: Tensor) -> Tensor:
        """Return the label where a cell is annotated."""
        return torch.where(self.values >= 0, (self.values == 1).to(probability.dtype), probability)

    def tempered(self, belief: Tensor, temperature: float) -> Tensor:
        if temperature == 1:
            return belief
        logits = torch.logit(belief.double(), eps=torch.finfo(torch.float32).eps)
        return self.consistent(self.probabilities(logits / temperature).to(belief.dtype))

    def log_likelihood(self, probability: Tensor) -> Tensor:
        """Return the mean log-likelihood over the annotated cells of each row; 0 where there are none."""
        known = self.values >= 0
        right = torch.where(self.values == 1, probability, 1 - probability).clamp(min=RAREST).log()
        return (right * known).sum(1) / known.sum(1).clamp(min=1)

    @classmethod
    def predicted(cls, probability: Tensor, classes: Sequence[str]) -> list[str]:
        present = (probability >= PRESENT).tolist()
        return [SEPARATOR.join(name for name, marked in zip(classes, row, strict=True) if marked) for row in present]

    @classmethod
    def validity_name(cls) -> str:
        return "auroc"

    def validity(self, logits: Tensor) -> Validity:
        """Return the mean AUROC over the classes that have annotated cells of both kinds; unknown where none has."""
        areas, cells = [], 0
        for own, marks in zip(logits.unbind(1), self.values.unbind(1), strict=True):
            present, absent = own[marks == 1], own[marks == 0]
            if len(present) and len(absent):
                areas.append(_area(present, absent))
                cells += len(present) + len(absent)
        return Validity(sum(areas) / len(areas), float(cells)) if areas else UNKNOWN

    def check(self, where: str) -> None:
        self._check_matrix(where)
        wrong = ((self.values < -1) | (self.values > 1)).nonzero()
        if len(wrong):
            row, column = (int(i) for i in wrong[0])
            raise DataError(
                f"{where}, row {row}, class {column}: {int(self.values[row, column])} is none of "
                "1 (present), 0 (absent), -1 (not annotated)"
            )

    def counts(self) -> ClassCounts:
        present, absent = (self.values == 1).sum(0), (self.values == 0).sum(0)
        annotated = present + absent
        unknown = torch.full_like(annotated, len(self)) - annotated
        return ClassCounts(present, absent, unknown, present.double(), annotated)

    def unknown(self) -> Tensor:
        return self.values < 0

    def marks(self) -> Tensor:
        return self.values

    def annotated_classes(self) -> Tensor:
        return (self.values >= 0).any(0)

    def facts(self, sizes: Sequence[int]) -> dict[str, Any]:
        sites = self.values.split(list(sizes))
        return {"annotated_rows": torch.stack([(site >= 0).sum(0) for site in sites], 1).tolist()}  # [class][site]

    def given_facts(self, sizes: Sequence[int], truth: Tensor | None) -> dict[str, Any]:
        return {"annotates": "given"}

    @classmethod
    def tally(cls, positive: int, negative: int, unknown: int) -> str:
        return f"+{positive} -{negative} ?{unknown}" if positive or negative else "never"

    @classmethod
    def held(cls, counts: ClassCounts) -> Tensor:
        return counts.labelled > 0

    @classmethod
    def caution(cls, counts: ClassCounts) -> str:
        return "a blank is read as not annotated, not as negative" if counts.unknown.any() else ""

    def label_table(
        self, ids: Sequence[str], classes: Sequence[str], belief: Tensor, learned: Tensor | None
    ) -> dict[str, list[Any]]:
        """Return one line per row and class, since every class is a separate question."""
        values, present = self.values.flatten(), belief.flatten() >= PRESENT
        everything = torch.ones(self.classes, dtype=torch.bool)
        known = (everything if learned is None else learned).repeat(len(self))
        confidence = torch.where(present, belief.flatten(), 1 - belief.flatten())
        suggested = torch.where(known, present.int(), -1)
        lines = list(zip(values.tolist(), known.tolist(), strict=True))
        return {
            "id": [name for name in ids for _ in classes],
            "class": list(classes) * len(self),
            "given": [WORDS[value] for value in values.tolist()],
            "suggested": [WORDS[value] for value in suggested.tolist()],
            "confidence": [c if k else None for c, k in zip(confidence.tolist(), known.tolist(), strict=True)],
            "reason": [_reason(value, k) for value, k in lines],
        }


def _area(present: Tensor, absent: Tensor) -> float:
    """Return the share of pairs in which the row with the class has the higher logit; equal logits count one half."""
    in_order = absent.contiguous().sort().values
    below, not_above = (torch.searchsorted(in_order, present.contiguous(), right=right) for right in (False, True))
    return float((below + not_above).sum()) / (2 * len(present) * len(absent))


def _reason(value: int, known: bool) -> str:
    if not known:
        return "nobody annotates this class"
    return "annotated" if value >= 0 else "filled in"
