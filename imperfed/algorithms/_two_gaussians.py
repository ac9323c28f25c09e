"""A mixture of two Gaussians, by which methods for noisy labels separate noisy sites or rows from clean ones."""

from __future__ import annotations

import math

import torch
from torch import Tensor

STEPS, TOLERANCE, FLOOR = 100, 1e-6, 1e-6
"""EM steps at most, change of the mean log-likelihood at which they end, what is added to a variance; as in
scikit-learn, which takes 1e-3 for the second."""


def higher_of_two(values: Tensor) -> Tensor:
    """Return which of n points [n] or [n, d] belong to the component whose means have the larger sum; bool [n].

    Components have diagonal covariances. EM begins at the best split of the points' sums in two and is deterministic;
    equal points, or fewer than two, form one component, and none is the higher.
    """
    x = values.double().reshape(len(values), -1)
    sums = x.sum(1)
    if len(x) < 2 or float(sums.max() - sums.min()) <= 1e-12:
        return torch.zeros(len(x), dtype=torch.bool, device=values.device)
    share = best_split(sums).double()
    share, before = torch.stack([1 - share, share], 1), -math.inf
    for _ in range(STEPS):
        weight, mean, spread = fit(x, share)
        logp = weight.log() - 0.5 * ((x.unsqueeze(1) - mean).square() / spread + (2 * math.pi * spread).log()).sum(2)
        total = torch.logsumexp(logp, 1)
        share, now = (logp - total.unsqueeze(1)).exp(), float(total.mean())
        if abs(now - before) < TOLERANCE:
            break
        before = now
    return share.argmax(1) == mean.sum(1).argmax()


def fit(x: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return weights [2], means [2, d] and variances [2, d] of the components, from each point's shares in them."""
    mass = share.sum(0) + 1e-10
    mean = share.T @ x / mass.unsqueeze(1)
    spread = share.T @ x.square() / mass.unsqueeze(1) - mean.square()
    return mass / len(x), mean, spread.clamp(min=0) + FLOOR


def best_split(sums: Tensor) -> Tensor:
    """Return which numbers are on the higher side of the split that leaves the least sum of squares."""
    ordered = sums.double().sort().values
    n = len(ordered)
    low = (ordered - ordered.mean()).cumsum(0)[:-1]  # the sum of the lower side; the higher one's is its negative
    k = torch.arange(1, n, device=sums.device)
    between = low.square() / k + low.square() / (n - k)  # the sum of squares that a split takes away
    return sums >= ordered[int(between.argmax()) + 1]
