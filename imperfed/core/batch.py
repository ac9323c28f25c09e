"""The rows of one local step, and the dictionaries of tensors that are remembered and sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from imperfed.core.errors import UsageError

Tree = dict[str, Tensor]


def prefixed(prefix: str, tree: Tree) -> Tree:
    """Return the tensors with names that begin with a prefix, as part of a larger tree."""
    return {f"{prefix}{name}": t for name, t in tree.items()}


def part_of(tree: Tree, prefix: str) -> Tree:
    """Return the part of a tree whose names begin with a prefix, under the names without it."""
    return {name.removeprefix(prefix): t for name, t in tree.items() if name.startswith(prefix)}


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
        """Return the mean over the real rows of a loss per row; one mean per site where several sites step together."""
        if values.numel() != self.share.numel():
            raise UsageError(
                f"loss returns the loss of each row, here [{self.share.numel()}], and what update_rows needs or None; "
                f"this one returned a loss of shape {list(values.shape)}"
            )
        if self.share.ndim == 1:
            return values.view_as(self.share) @ self.share
        return (values.view_as(self.share) * self.share).sum(-1)
