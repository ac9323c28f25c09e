"""Ensembles of decision trees, stored as one table of nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from imperfed.alone.base import Fitted

CHUNK = 1 << 22
"""The most (row, tree) pairs that are followed at once."""


@dataclass(frozen=True)
class Trees(Fitted, ABC):
    """Decision trees one after the other: the nodes of all trees, and the root of each.

    From a node a row goes to `left` if its number in column `feature` is at most `threshold`; a leaf leads to itself.
    """

    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    root: Tensor
    depth: Tensor
    """The length of the longest path."""

    def leaves(self, x: Tensor) -> Tensor:
        """Return the leaf that every row reaches in every tree, [n, trees]."""
        at = self.root.expand(x.shape[0], -1)  # not len(x), which an export would take for a constant
        for _ in range(int(self.depth)):
            goes_left = x.gather(1, self.feature[at]) <= self.threshold[at]
            at = torch.where(goes_left, self.left[at], self.right[at])
        return at

    def probabilities(self, x: Tensor) -> Tensor:
        if torch.compiler.is_exporting():  # the number of rows is not known
            return self.combined(self.leaves(x.double())).float()
        parts = x.double().split(max(1, CHUNK // max(1, len(self.root))))
        return torch.cat([self.combined(self.leaves(part)) for part in parts]).float()

    @abstractmethod
    def combined(self, leaves: Tensor) -> Tensor:
        """Return the probabilities that the leaves reached stand for."""


@dataclass(frozen=True)
class AveragedTrees(Trees):
    """A forest: the mean over trees of the classes' shares in the leaf."""

    form: ClassVar[str] = "forest"
    share: Tensor
    """[nodes, k]"""

    def combined(self, leaves: Tensor) -> Tensor:
        return self.share[leaves].mean(1)


@dataclass(frozen=True)
class BoostedTrees(Trees):
    """Boosting: every tree adds the number in its leaf to the logit of one class."""

    form: ClassVar[str] = "boosting"
    value: Tensor
    """[nodes]"""
    column: Tensor
    """The class of every tree."""
    start: Tensor
    """The logits without any tree, [k]."""

    def combined(self, leaves: Tensor) -> Tensor:
        logits = self.start.repeat(leaves.shape[0], 1)
        logits.index_add_(1, self.column, self.value[leaves])
        return torch.softmax(logits, 1)


def joined(trees: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    """Return the fields of `Trees` from single trees: nodes numbered from 0, `left` below 0 at a leaf."""
    sizes = [len(tree["feature"]) for tree in trees]
    root = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    own = np.concatenate([np.arange(size) for size in sizes])
    shift = np.repeat(root, sizes)
    left, right = (np.concatenate([tree[side] for tree in trees]).astype(np.int64) for side in ("left", "right"))
    leaf = left < 0
    feature = np.where(leaf, 0, np.concatenate([tree["feature"] for tree in trees])).astype(np.int64)
    depth = max((depth_of(tree["left"], tree["right"]) for tree in trees), default=0)
    return {
        "feature": torch.from_numpy(feature),
        "threshold": torch.from_numpy(np.concatenate([tree["threshold"] for tree in trees]).astype(np.float64)),
        "left": torch.from_numpy(np.where(leaf, own, left) + shift),
        "right": torch.from_numpy(np.where(leaf, own, right) + shift),
        "root": torch.from_numpy(root),
        "depth": torch.tensor(depth),
    }


def depth_of(left: Any, right: Any) -> int:
    """Return the number of steps from the root, which is node 0, to the deepest leaf."""
    level, depth = np.array([0]), 0
    while len(inner := level[left[level] >= 0]):
        level, depth = np.concatenate([left[inner], right[inner]]).astype(np.int64), depth + 1
    return depth
