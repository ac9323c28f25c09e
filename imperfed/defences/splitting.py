"""Two groups in one dimension: the exact split, and guards that say when there is none.

Any sample can be cut in two. The best cut of ten scores of honest sites leaves halves that lie 2.7 to 3.5 standard
deviations apart, so a cut means nothing before a guard has accepted it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

FEWEST = 4
"""Scores below which nothing is split."""

DRAWS = 10_000
"""Samples of the null law."""

CHUNK = 1 << 20
"""Numbers of the null law held at once."""


@dataclass(frozen=True)
class Split:
    """The exact 2-means of n scores."""

    high: Tensor
    """bool [n]: the members of the higher group."""
    threshold: float
    """Midway between the two groups."""
    low_mean: float
    high_mean: float
    low_sd: float
    """Population standard deviation of the lower group."""
    ratio: float
    """R = W / TSS: what the cut leaves of the sum of squares, 0 .. 1; small is well separated."""

    @property
    def members(self) -> int:
        """The size of the higher group."""
        return int(self.high.sum())

    @property
    def gap(self) -> float:
        """The distance of the groups' means."""
        return self.high_mean - self.low_mean


def within(s: Tensor) -> Tensor:
    """W(k), k = 1 .. n - 1, of scores sorted along the last dimension: squares within the k lowest and the others."""
    n = s.shape[-1]
    s = s - s.mean(-1, keepdim=True)  # sums of squares of scores far from 0 would lose their digits
    sums, squares = s.cumsum(-1), s.square().cumsum(-1)
    k = torch.arange(1, n, dtype=s.dtype)
    low = squares[..., :-1] - sums[..., :-1].square() / k
    rest, rest_squares = sums[..., -1:] - sums[..., :-1], squares[..., -1:] - squares[..., :-1]
    return low + rest_squares - rest.square() / (n - k)


def two_means(scores: Tensor) -> Split | None:
    """The cut with the least squares within its groups, ties to the smaller lower group; None if all are equal."""
    s = scores.double()
    ordered = s.sort().values
    if len(s) < 2 or ordered[0] == ordered[-1]:
        return None
    W = within(ordered)
    k = int(W.argmin()) + 1
    low, high = ordered[:k], ordered[k:]
    total = (s - s.mean()).square().sum()
    return Split(
        high=s >= high[0],
        threshold=float((low[-1] + high[0]) / 2),
        low_mean=float(low.mean()),
        high_mean=float(high.mean()),
        low_sd=float(low.std(correction=0)),
        ratio=float(W[k - 1].clamp(min=0) / total),
    )


def too_near(split: Split, n: int, deviations: float) -> str | None:
    """Why a small higher group is not clear of the others, if it is not: the guard by distance."""
    most = -(-n // 3)
    if n < FEWEST:
        return f"{n} scores are too few to split"
    if split.members > most:
        return f"{split.members} of {n} on the high side, at most {most} can be adversaries"
    if split.gap < deviations * split.low_sd:
        return f"the high side is {split.gap / split.low_sd:.2f} standard deviations away, {deviations:g} are needed"
    return None


def too_usual(split: Split, n: int, level: float, min_gap: float) -> str | None:
    """Why scores without any groups could split like this, if they could: the stricter guard, by the null law of R."""
    fewest = max(2, -(-n // 10))
    if n < FEWEST:
        return f"{n} scores are too few to split"
    if min(split.members, n - split.members) < fewest:
        return f"a group of {min(split.members, n - split.members)}, below {fewest}"
    if split.gap < min_gap:
        return f"the means are {split.gap:.3f} apart, {min_gap:g} is needed"
    p = chance(split.ratio, n)
    return f"uniform scores split as well with probability {p:.3f}" if p >= level else None


def chance(ratio: float, n: int) -> float:
    """The probability that n scores of a uniform law, the hardest without groups, split with a ratio as small."""
    return float((1 + (null_law(n) <= ratio).sum()) / (1 + DRAWS))


@cache
def null_law(n: int) -> Tensor:
    """R of many samples of n uniform numbers. It does not depend on place and scale: one law for every n."""
    draw = torch.Generator().manual_seed(n)
    parts = []
    for rows in torch.arange(DRAWS).split(max(1, CHUNK // n)):
        s = torch.rand(len(rows), n, generator=draw, dtype=torch.float64).sort(-1).values
        parts.append(within(s).amin(-1) / (s - s.mean(-1, keepdim=True)).square().sum(-1))
    return torch.cat(parts)
