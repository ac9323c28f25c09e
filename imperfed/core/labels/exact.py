"""Exact labels: one class per example, right or wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from imperfed.core.labels.base import Labels
from imperfed.core.labels.counts import ClassCounts
from imperfed.core.labels.one_class import OneClass


@dataclass(frozen=True)
class Exact(OneClass):
    """One label per example, right or wrong."""

    kind: ClassVar[str] = "exact"
    title: ClassVar[str] = "exact labels"
    settles: ClassVar[bool] = True
    measurable: ClassVar[bool] = True
    legend: ClassVar[tuple[str, str, str]] = ("of this class", "of another class", "not known")

    def as_kind(self, kind: type[Labels]) -> Labels:
        """Return the same labels as another kind."""
        return kind.from_classes(self.values, self.classes)

    def counts(self) -> ClassCounts:
        present = self.values.bincount(minlength=self.classes)
        rows = torch.full_like(present, len(self))
        return ClassCounts(present, rows - present, torch.zeros_like(present), present.double(), rows)

    def given_facts(self, sizes: Sequence[int], truth: Tensor | None) -> dict[str, Any]:
        if truth is None:
            return {}
        wrong = (self.values != truth).double().split(list(sizes))
        return {"noise": "given", "noise_rates": [float(site.mean()) for site in wrong]}
