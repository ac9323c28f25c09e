"""Pairs of a batch's rows that are mixed with each other (Zhang et al., "mixup", ICLR 2018)."""

from __future__ import annotations

import torch
from torch import Tensor

from imperfed.core.batch import Batch, Tree


def draw_pairs(steps: int, batch: int, generator: torch.Generator) -> Tree:
    """Return the keys by which the rows of every step's batch are put in random order."""
    return {"keys": torch.rand(steps, batch, generator=generator)}


def draw_shares(alpha: float, steps: int, generator: torch.Generator) -> Tensor:
    """Return one share per step from Beta(alpha, alpha)."""
    a, b = torch._standard_gamma(torch.full((2, steps), alpha, dtype=torch.float64), generator)
    share: Tensor = a / (a + b)
    return share.to(torch.get_default_dtype())


def partners(batch: Batch) -> Tensor:
    """Return the row with which each row is mixed: a random order of the real rows."""
    # Padding gets the largest keys, so that the real rows, which come first, have the same partners without it.
    return (batch.draws["keys"] + 2 * (1 - batch.real)).argsort(stable=True)
