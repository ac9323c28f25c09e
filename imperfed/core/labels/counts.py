"""What labels say about each class, as numbers of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True)
class ClassCounts:
    """Numbers of rows by class, [C] each."""

    positive: Tensor
    """Rows known to have the class."""
    negative: Tensor
    """Rows known not to have it."""
    unknown: Tensor
    """Rows for which neither is known."""
    weight: Tensor
    """Rows of the class, where each of several candidates counts as a fraction of a row: float64."""
    labelled: Tensor
    """Rows that say anything about the class."""

    def rate(self) -> Tensor:
        """Return the share of the class among the rows that say anything about it; nan where none does."""
        return self.weight / self.labelled

    @staticmethod
    def total(parts: Sequence[ClassCounts]) -> ClassCounts:
        """Return the sum over sites."""
        names = [field.name for field in fields(ClassCounts)]
        return ClassCounts(*(torch.stack([getattr(part, name) for part in parts]).sum(0) for name in names))


def one_class_each(sites: Iterable[ClassCounts]) -> bool:
    """Return whether every site names one class at most, so that nothing at a site separates the classes."""
    return all(int((site.weight > 0).sum()) <= 1 for site in sites)
