"""What fills blank inputs, learned from what sites report about their columns: never a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.data.moments import Moments

STATISTICS = ("median", "mean", "mode")


@dataclass(frozen=True)
class ColumnFill:
    """How the blanks of one column are filled."""

    column: str
    first: int
    """Its place among the inputs; a column of categories takes the places up to `end`."""
    end: int
    how: str
    """One of `STATISTICS`, or a value as it is declared."""
    value: tuple[float, ...] = ()
    """The declared value, one number per place; empty if it is learned."""


def median_places(fills: Sequence[ColumnFill]) -> tuple[int, ...]:
    """Return the places of the columns of which sites report quantiles."""
    return tuple(fill.first for fill in fills if fill.how == "median" and not fill.value)


def learn_fills(fills: Sequence[ColumnFill], sites: Sequence[Moments]) -> Tensor:
    """Return the number that fills a blank, per place, from the moments of all sites."""
    n, total = (torch.stack(parts).sum(0) for parts in zip(*((s.n, s.total) for s in sites), strict=True))
    values, medians = torch.zeros_like(total), dict(zip(median_places(fills), _medians(sites), strict=True))
    for fill in fills:
        places = slice(fill.first, fill.end)
        if not fill.value and not n[places].any():
            raise DataError(
                f"inputs.fill: too few values of {fill.column} are known at any site to learn its {fill.how}; "
                f"write a value instead, or leave the column out"
            )
        if fill.value:
            values[places] = torch.tensor(fill.value, dtype=values.dtype)
        elif fill.how == "median":
            values[fill.first] = medians[fill.first]
        elif fill.how == "mean":
            values[places] = total[places] / n[places]
        else:
            values[fill.first + int(total[places].argmax())] = 1.0  # columns of 0 and 1: sums are counts
    return values.float()


def _medians(sites: Sequence[Moments]) -> list[float]:
    """Return the median of each column for which sites report quantiles; each stands for its share of the rows."""
    every = torch.cat([site.quantiles for site in sites], 1)
    weights = torch.cat([site.known[:, None].expand_as(site.quantiles) for site in sites], 1).double()
    found = []
    for values, weight in zip(every, weights, strict=True):
        order = values.argsort(stable=True)
        reached = weight[order].cumsum(0)
        middle = int((2 * reached >= reached[-1]).nonzero()[0])
        found.append(float(values[order[middle]]))
    return found
