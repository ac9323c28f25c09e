"""Parts of losses shared by two or more methods. All take logits or log-probabilities and never compute log(0)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

NEVER = -1e30
"""Stands for minus infinity in masked maxima and sums; finite, so that no gradient becomes NaN."""


def masked(values: Tensor, mask: Tensor) -> Tensor:
    """Return the values inside the mask, and `NEVER` elsewhere."""
    return values.masked_fill(~mask, NEVER)


def masked_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Return the softmax restricted to the mask: exactly 0 outside it, never 0/0. Rows with an empty mask are 0."""
    return torch.softmax(masked(logits, mask), -1) * mask


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of every row over its mask; 0 where the mask is empty."""
    return (values * mask).sum(-1) / mask.sum(-1).clamp(min=1)


def mean_over_cells(values: Tensor, weights: Tensor, real: Tensor) -> Tensor:
    """Return one number per row, whose mean over the real rows is the weighted mean of a batch's cells [n, C]."""
    weights = weights * real.unsqueeze(-1)
    total = weights.sum()
    return (values * weights).sum(-1) * real.sum() / torch.where(total > 0, total, 1.0)


def masked_best(values: Tensor, mask: Tensor) -> Tensor:
    """Return the largest value inside the mask as one-hot, ties to the lowest class; even -inf stays inside it."""
    inside = values.clamp(min=torch.finfo(values.dtype).min).masked_fill(~mask, -torch.inf)
    return torch.zeros_like(values).scatter(-1, inside.argmax(-1, keepdim=True), 1.0)


def masked_logsumexp(logp: Tensor, mask: Tensor) -> Tensor:
    """Return the log of the sum of exp over the mask."""
    return torch.logsumexp(masked(logp, mask), -1)


def log1m_softmax(logits: Tensor) -> Tensor:
    """Return log(1 - p_j) for every class, p the softmax; value and gradient are correct even if p_j rounds to 1."""
    # Only the largest p_j can be near 1. For it, 1 - p_j is summed over the other classes, without cancellation.
    top = masked_best(logits.detach(), torch.ones_like(logits, dtype=torch.bool)).bool()
    share = masked_logsumexp(logits, ~top) - torch.logsumexp(logits, -1)
    small = log_softmax(logits, -1).masked_fill(top, NEVER)  # at most log(1/2)
    return torch.where(top, share.unsqueeze(-1), torch.log1p(-small.exp()))


def weighted_ce(weights: Tensor, logits: Tensor) -> Tensor:
    """Return -sum_j w_j log p_j for every example."""
    return -(weights * log_softmax(logits, -1)).sum(-1)
