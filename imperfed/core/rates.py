"""Learning rates: a number, or a tensor where a captured program reads a rate that changes between rounds."""

from __future__ import annotations

import torch
from torch import Tensor

Rate = float | Tensor
"""A tensor is 0-dimensional, and `alpha=` does not take it without waiting for its value: use `descend`."""


def descend(w: Tensor, g: Tensor, lr: Rate, out: Tensor | None = None) -> Tensor:
    """Return w - lr g, in `out` where it is given (it may be w itself)."""
    if isinstance(lr, Tensor):
        return torch.addcmul(w, g, lr, value=-1, out=out)
    return torch.sub(w, g, alpha=lr, out=out)
