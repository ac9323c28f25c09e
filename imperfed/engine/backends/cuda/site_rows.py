"""Tensors with one row per site, at fixed addresses."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from imperfed.core.batch import Tree

ALIGNED = 64
"""The alignment of rows at which any kernel can start, in numbers: 256 bytes."""


def matrix(rows: int, columns: int, device: torch.device) -> Tensor:
    """Return a matrix of zeros whose rows begin at addresses from which the fastest kernels can read."""
    wide = -(-columns // ALIGNED) * ALIGNED
    return torch.zeros(rows, wide, device=device)[:, :columns]


def stacked(trees: Sequence[Tree]) -> Tree:
    """Stack the trees' tensors, one row per tree."""
    return {name: torch.stack([tree[name] for tree in trees]) for name in trees[0]}


def unstacked(tree: Tree, count: int) -> list[Tree]:
    """Return the rows of stacked trees, as views."""
    return [{name: t[m] for name, t in tree.items()} for m in range(count)]


def fill_rows(rows: Tensor, parts: list[Tensor]) -> None:
    """Fill one row per part; with one copy where all parts are the same tensor."""
    if all(part is parts[0] for part in parts):
        rows.copy_(parts[0])
    else:
        torch.stack(parts, out=rows)
