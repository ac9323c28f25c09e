"""The rows of one local step, and the dictionaries of tensors that are remembered and sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

Tree = dict[str, Tensor]


@dataclass(frozen=True)
class Batch:
    """The examples of one local step. `real` is 0 on rows that only pad the batch to its shape."""

    x: Tensor
    labels: Any
    real: Tensor
    share: Tensor
    """1 / (number of real rows) on real rows, 0 on padding; one row per site where several sites step together."""
    rows: Tree
    """What the objective remembers about these examples."""
    draws: Tree
    """This step's random numbers, drawn before the round."""
    site_stats: Tree = field(default_factory=dict)
    """What the objective knows about all labels of the site together."""

    @classmethod
    def of(cls, x: Tensor, labels: Any, real: Tensor, rows: Tree, draws: Tree, site_stats: Tree | None = None) -> Batch:
        """Return a batch, with `share` computed from `real`."""
        return cls(x, labels, real, real / real.sum().clamp(min=1), rows, draws, site_stats or {})

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over the real rows; one per site where several sites step together."""
        if self.share.ndim == 1:
            return values @ self.share
        return (values.view_as(self.share) * self.share).sum(-1)
