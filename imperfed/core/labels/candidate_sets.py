"""Labels that name several classes, one of which is the true one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.labels.base import Labels
from imperfed.core.labels.counts import ClassCounts


@dataclass(frozen=True)
class CandidateSets(Labels):
    """A set of candidates per example: those whose value is above 0."""

    caption: ClassVar[str] = "rows with the class as a candidate, in brackets as the only one"
    legend: ClassVar[tuple[str, str, str]] = ("the only candidate", "no candidate", "one of several candidates")

    def counts(self) -> ClassCounts:
        sets = self.values > 0
        rows = torch.full((self.classes,), len(self))
        present, absent = sets[sets.sum(1) == 1].sum(0), (~sets).sum(0)
        weight = (self.values / self.values.sum(1, keepdim=True)).double().sum(0)
        return ClassCounts(present, absent, rows - present - absent, weight, rows)

    def set_sizes(self) -> dict[int, int]:
        size, rows = (self.values > 0).sum(1).unique(return_counts=True)
        return dict(zip(size.tolist(), rows.tolist(), strict=True))

    @classmethod
    def tally(cls, positive: int, negative: int, unknown: int) -> str:
        return f"{positive + unknown} ({positive})" if positive or unknown else ""

    @classmethod
    def naming(cls, counts: ClassCounts) -> Tensor:
        return counts.positive + counts.unknown
