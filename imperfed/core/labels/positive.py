"""One positive label per example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from imperfed.core.labels.base import Labels
from imperfed.core.labels.counts import ClassCounts
from imperfed.core.labels.one_class import OneClass
from imperfed.core.labels.positives import Positives, positive_counts
from imperfed.core.labels.validity import Validity


@dataclass(frozen=True)
class Positive(OneClass):
    """One class known to be present; nothing is known about the others."""

    kind: ClassVar[str] = "positive"
    title: ClassVar[str] = "positives only, one per row"
    several: ClassVar[bool] = True
    ranked: ClassVar[bool] = True
    uncalibrated: ClassVar[str] = Positives.uncalibrated

    @classmethod
    def validity_name(cls) -> str:
        return Positives.validity_name()

    def validity(self, logits: Tensor) -> Validity:
        return Positives.from_classes(self.values, self.classes).validity(logits)

    @classmethod
    def clean_kind(cls) -> type[Labels]:
        return Positives  # clean rows name all of their classes

    def contradicted_by(self, truth: Tensor) -> Tensor:
        marks = truth.gather(1, self.values[:, None].clamp(min=0)).flatten()
        return (self.values >= 0) & (marks == 0)

    def counts(self) -> ClassCounts:
        return positive_counts(self.values.bincount(minlength=self.classes), len(self))

    @classmethod
    def caution(cls, counts: ClassCounts) -> str:
        return Positives.caution(counts)
