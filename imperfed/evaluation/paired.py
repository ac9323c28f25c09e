"""Two models per site on the same rows: the difference of their figures, and how far chance may have made it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

DRAWS = 400
"""Bootstrap samples."""
LEVEL = 0.95


@dataclass(frozen=True)
class Difference:
    """The means over sites of two models' figures, and the interval of their difference over rows."""

    first: float
    second: float
    low: float
    high: float
    n: int
    """Distinct rows."""


Figure = Callable[[Tensor], float]
"""A figure of one model over rows of a site, given by their numbers."""


def paired_difference(
    sites: Sequence[tuple[int, Figure, Figure]], seed: int, same_rows: bool = False
) -> Difference | None:
    """Compare two models at every site: the number of its rows, and each model's figure over any of them.

    Rows are drawn with replacement at each site, the same for both models; with `same_rows` also the same for all
    sites, which then have the same rows. None if no figure exists.
    """
    measured = [site for site in sites if site[0]]
    whole = _means(measured, [torch.arange(n) for n, _, _ in measured])
    if whole is None:
        return None
    generator = torch.Generator().manual_seed(seed)
    gains = []
    for _ in range(DRAWS):
        rows = [torch.randint(n, (n,), generator=generator) for n, _, _ in measured[: 1 if same_rows else None]]
        drawn = _means(measured, rows * len(measured) if same_rows else rows)
        if drawn is not None:
            gains.append(drawn[0] - drawn[1])
    edges = torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=torch.float64)
    low, high = torch.tensor(gains, dtype=torch.float64).quantile(edges).tolist()
    return Difference(*whole, low, high, measured[0][0] if same_rows else sum(n for n, _, _ in measured))


def interval_of_mean(values: Sequence[float]) -> tuple[float, float]:
    """Return where the mean of which these values are a sample lies, by Student's t."""
    from scipy.stats import t

    n, mean = len(values), fmean(values)
    reach = float(t.ppf((1 + LEVEL) / 2, n - 1)) * stdev(values) / math.sqrt(n)
    return mean - reach, mean + reach


def _means(sites: Sequence[tuple[int, Figure, Figure]], rows: Sequence[Tensor]) -> tuple[float, float] | None:
    """Return both models' means over the sites where both figures exist."""
    pairs = [(first(own), second(own)) for (_, first, second), own in zip(sites, rows, strict=True)]
    known = [pair for pair in pairs if pair[0] == pair[0] and pair[1] == pair[1]]
    return (fmean(a for a, _ in known), fmean(b for _, b in known)) if known else None


def combined(sites: Sequence[Difference]) -> Difference | None:
    """Combine the differences that sites measured on rows of their own; None if there are none.

    The mean's distance to either end of its interval is the root of the sum of squares of the sites' distances, by
    their number: it needs no rows, and keeps intervals that are not symmetric.
    """
    if not sites:
        return None
    gains = [site.first - site.second for site in sites]
    down, up = (
        math.hypot(*(max(0.0, side) for side in sides)) / len(sites)
        for sides in (
            [gain - site.low for gain, site in zip(gains, sites, strict=True)],
            [site.high - gain for gain, site in zip(gains, sites, strict=True)],
        )
    )
    first, second = fmean(site.first for site in sites), fmean(site.second for site in sites)
    return Difference(first, second, fmean(gains) - down, fmean(gains) + up, sum(site.n for site in sites))


def over_rows(figure: Callable[[Tensor, Any], float], logits: Tensor, truth: Any) -> Figure:
    """Return a figure of these logits over any of their rows."""
    return lambda rows: figure(logits[rows], truth[rows])
