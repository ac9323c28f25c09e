"""Two groups in one dimension: the exact split, and guards that say when there is none.

Any sample can be cut in two. The best cut of ten scores of honest sites leaves halves that lie 2.7 to 3.5 standard
deviations apart, so a cut means nothing before a guard has accepted it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

FEWEST = 4
"""Scores below which nothing is split."""

DRAWS = 20_000
"""Samples of a null law."""

CHUNK = 1 << 20
"""Numbers of them held at once."""


@dataclass(frozen=True)
class GuardSplit:
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
    k = torch.arange(1, n, dtype=s.dtype, device=s.device)
    low = squares[..., :-1] - sums[..., :-1].square() / k
    rest, rest_squares = sums[..., -1:] - sums[..., :-1], squares[..., -1:] - squares[..., :-1]
    return low + rest_squares - rest.square() / (n - k)


def two_means(scores: Tensor) -> GuardSplit | None:
    """The cut with the least squares within its groups, ties to the smaller lower group; None if all are equal."""
    s = scores.double()
    ordered = s.sort().values
    if len(s) < 2 or ordered[0] == ordered[-1]:
        return None
    W = within(ordered)
    k = int(W.argmin()) + 1
    low, high = ordered[:k], ordered[k:]
    return GuardSplit(
        high=s >= high[0],
        threshold=float((low[-1] + high[0]) / 2),
        low_mean=float(low.mean()),
        high_mean=float(high.mean()),
        low_sd=float(low.std(correction=0)),
        ratio=float(W[k - 1].clamp(min=0) / squares(s)),
    )


def too_near(split: GuardSplit, n: int, deviations: float, gap: float) -> str | None:
    """Why the higher group is not small and far from the others, if it is not: the guards by distance."""
    if n < FEWEST:
        return f"{n} scores are too few to split"
    if many := too_many(split, n):
        return many
    if split.gap < deviations * split.low_sd:
        away = split.gap / split.low_sd
        return f"the high side is {away:.2f} standard deviations away, {deviations:.2f} are needed"
    return too_close(split, gap)


def too_usual(split: GuardSplit, n: int, level: float, gap: float) -> str | None:
    """Why scores without any groups could split like this, if they could: the guard by the law of R."""
    fewest, smaller = max(2, -(-n // 10)), min(split.members, n - split.members)
    if n < FEWEST:
        return f"{n} scores are too few to split"
    if smaller < fewest:
        return f"a group of {smaller}, below {fewest}"
    p = chance(split.ratio, n)
    if p >= level:
        return f"uniform scores split as well with probability {p:.3f}"
    return too_many(split, n) or too_close(split, gap)


def too_many(split: GuardSplit, n: int) -> str | None:
    """Why the higher group is too large to be that of the adversaries, if it is."""
    if split.members <= most(n):
        return None
    return f"{split.members} of {n} on the high side, at most {most(n)} can be adversaries"


def too_close(split: GuardSplit, gap: float) -> str | None:
    """Why the groups are not far apart in the units of the score, if they are not."""
    return f"the means are {split.gap:.3f} apart, {gap:g} is needed" if split.gap < gap else None


def most(n: int) -> int:
    """ceil(n / 3): how many of n sites can be adversaries."""
    return -(-n // 3)


def chance(ratio: float, n: int) -> float:
    """The probability that n scores of a uniform law, the hardest without groups, split with a ratio as small."""
    return float((1 + (ratios_by_chance(n) <= ratio).sum()) / (1 + DRAWS))


@cache
def ratios_by_chance(n: int) -> Tensor:
    """R of many samples of n uniform numbers. It does not depend on place and scale: one law for every n."""
    return torch.cat([within(s).amin(-1) / squares(s) for s in samples(n, torch.rand)])


def clear(n: int, level: float) -> float:
    """The standard deviations by which a small higher group of n normal scores is away no more often than `level`."""
    return float(distances_by_chance(n).quantile(1 - level))


@cache
def distances_by_chance(n: int) -> Tensor:
    """How far the higher group of n normal numbers lies away, of many samples."""
    return torch.cat([distances(s) for s in samples(n, torch.randn)])


def distances(s: Tensor) -> Tensor:
    """How far the higher group of each sorted sample lies from the lower, in its deviations; 0 if it is not small."""
    n = s.shape[-1]
    k = within(s).argmin(-1, keepdim=True) + 1
    low = torch.arange(n) < k
    low_mean, high_mean = ((s * part).sum(-1) / part.sum(-1) for part in (low, ~low))
    low_sd = ((s - low_mean.unsqueeze(-1)).square() * low).sum(-1).div(k.squeeze(-1)).sqrt()
    return torch.where(n - k.squeeze(-1) <= most(n), (high_mean - low_mean) / low_sd, 0.0)


def squares(s: Tensor) -> Tensor:
    """The sum of squares around the mean."""
    return (s - s.mean(-1, keepdim=True)).square().sum(-1)


def samples(n: int, law: Callable[..., Tensor]) -> Iterator[Tensor]:
    """The same sorted samples of n numbers every time, some at once."""
    draw = torch.Generator().manual_seed(n)
    for rows in torch.arange(DRAWS).split(max(1, CHUNK // n)):
        yield law(len(rows), n, generator=draw, dtype=torch.float64).sort(-1).values
