"""Two groups in one dimension: the exact split, and guards that decide whether there are two groups at all.

Any sample can be cut in two. The best cut of ten scores of honest sites leaves halves that lie 2.7 to 3.5 standard
deviations apart, so a cut means nothing until a guard has accepted it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

FEWEST = 4
"""The smallest number of scores that is split."""

DRAWS = 20_000
"""The number of samples of a null distribution."""

CHUNK = 1 << 20
"""The most numbers of these samples in memory at once."""


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
    """R = W / TSS: the share of the sum of squares left within the groups, 0 .. 1; small means well separated."""

    @property
    def members(self) -> int:
        """The size of the higher group."""
        return int(self.high.sum())

    @property
    def gap(self) -> float:
        """The distance between the groups' means."""
        return self.high_mean - self.low_mean


def within(s: Tensor) -> Tensor:
    """Return W(k), k = 1 .. n - 1, of scores sorted along the last dimension.

    W(k) is the sum of squares within the k lowest scores plus that within the others.
    """
    n = s.shape[-1]
    s = s - s.mean(-1, keepdim=True)  # sums of squares of scores far from 0 would lose precision
    sums, squares = s.cumsum(-1), s.square().cumsum(-1)
    k = torch.arange(1, n, dtype=s.dtype, device=s.device)
    low = squares[..., :-1] - sums[..., :-1].square() / k
    rest, rest_squares = sums[..., -1:] - sums[..., :-1], squares[..., -1:] - squares[..., :-1]
    return low + rest_squares - rest.square() / (n - k)


def two_means(scores: Tensor) -> GuardSplit | None:
    """Return the cut with the least squares within its groups, ties to the smaller lower one; None if all are equal."""
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
    """Return why the higher group is too large or too close to the lower, None if it is not: the guards by distance."""
    if n < FEWEST:
        return f"{n} scores are too few to split"
    if many := too_many(split, n):
        return many
    if split.gap < deviations * split.low_sd:
        away = split.gap / split.low_sd
        return f"the high side is {away:.2f} standard deviations away, {deviations:.2f} are needed"
    return too_close(split, gap)


def too_usual(split: GuardSplit, n: int, level: float, gap: float) -> str | None:
    """Return why scores without groups could split like this, None if they could not: the guard by the law of R."""
    fewest, smaller = max(2, -(-n // 10)), min(split.members, n - split.members)
    if n < FEWEST:
        return f"{n} scores are too few to split"
    if smaller < fewest:
        return f"a group of {smaller} is below the minimum of {fewest}"
    p = chance(split.ratio, n)
    if p >= level:
        return f"uniform scores split as well as this with probability {p:.3f}"
    return too_many(split, n) or too_close(split, gap)


def too_many(split: GuardSplit, n: int) -> str | None:
    """Return why the higher group is too large to be the adversaries; None if it is not."""
    if split.members <= most(n):
        return None
    return f"{split.members} of {n} on the high side, at most {most(n)} can be adversaries"


def too_close(split: GuardSplit, gap: float) -> str | None:
    """Return why the groups are too close in units of the score; None if they are not."""
    return f"the means are {split.gap:.3f} apart, {gap:g} is needed" if split.gap < gap else None


def most(n: int) -> int:
    """Return ceil(n / 3), the most of n sites that can be adversaries."""
    return -(-n // 3)


def chance(ratio: float, n: int) -> float:
    """Return the probability that n uniform scores, the hardest case without groups, split with a ratio as small."""
    return float((1 + (ratios_by_chance(n) <= ratio).sum()) / (1 + DRAWS))


@cache
def ratios_by_chance(n: int) -> Tensor:
    """Return R of many samples of n uniform numbers. It does not depend on location or scale: one law for every n."""
    return torch.cat([within(s).amin(-1) / squares(s) for s in samples(n, torch.rand)])


def clear(n: int, level: float) -> float:
    """Return the distance, in standard deviations, that a small higher group of n normal scores exceeds at `level`."""
    return float(distances_by_chance(n).quantile(1 - level))


@cache
def distances_by_chance(n: int) -> Tensor:
    """Return the distance of the higher group in many samples of n normal numbers."""
    return torch.cat([distances(s) for s in samples(n, torch.randn)])


def distances(s: Tensor) -> Tensor:
    """Return the distance between the groups of each sorted sample, in lower deviations; 0 if the higher is large."""
    n = s.shape[-1]
    k = within(s).argmin(-1, keepdim=True) + 1
    low = torch.arange(n) < k
    low_mean, high_mean = ((s * part).sum(-1) / part.sum(-1) for part in (low, ~low))
    low_sd = ((s - low_mean.unsqueeze(-1)).square() * low).sum(-1).div(k.squeeze(-1)).sqrt()
    return torch.where(n - k.squeeze(-1) <= most(n), (high_mean - low_mean) / low_sd, 0.0)


def squares(s: Tensor) -> Tensor:
    """Return the sum of squares around the mean."""
    return (s - s.mean(-1, keepdim=True)).square().sum(-1)


def samples(n: int, law: Callable[..., Tensor]) -> Iterator[Tensor]:
    """Yield the same sorted samples of n numbers every time, in chunks."""
    draw = torch.Generator().manual_seed(n)
    for rows in torch.arange(DRAWS).split(max(1, CHUNK // n)):
        yield law(len(rows), n, generator=draw, dtype=torch.float64).sort(-1).values
