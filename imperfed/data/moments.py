"""What a site reports about its inputs: counts, sums, sums of squares and, where blanks are filled, quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.lazy import LazyRows, blocks

FEWEST = 10
"""The fewest rows whose sums may leave a site."""
LEVELS = torch.arange(1, 20) / 20
"""The quantiles that a site reports of a column: without its extremes, which are values of single rows."""
SAMPLE = 2048
"""The number of rows, evenly spread, from which the usual range of a column is taken."""
COLUMNS, NUMBERS = 4, 1 << 21
"""The columns of a table that are summed at once: so many, or more if the numbers in them are no more than these."""
TAIL = 0.05
BEYOND_REASON = 1000.0
"""How many times the range of a site's middle 90 % a number may be away from its median before it is a mistake."""
BEYOND_CONSTANT = 1e6
"""The same for columns with one value in nearly all rows, in units of that value or 1."""


@dataclass(frozen=True)
class Moments:
    """The number of values per feature, their sum and their sum of squares."""

    n: Tensor
    total: Tensor
    squares: Tensor
    mistakes: Tensor
    """The number of values that were left out because they are beyond reason; 0-dimensional."""
    quantiles: Tensor
    """[columns whose blanks are filled by their median, levels]; empty without such columns."""
    known: Tensor
    """The number of values behind each row of `quantiles`."""

    @classmethod
    def of(cls, x: Tensor) -> Moments:
        """Return the sums of a table per column, and of images per channel over all pixels."""
        if x.ndim == 2:
            x = x.double()
            return cls._sums(torch.full(x.shape[1:], len(x)), x.sum(0), x.square().sum(0))
        over, pixels = (0, *range(2, x.ndim)), x.shape[2:].numel()
        sums = [
            torch.stack([t.sum(over, keepdim=True, dtype=torch.float64)[0] for t in (part, part.square())])
            for part in blocks(x)
        ]
        total, squares = torch.stack(sums).sum(0)
        return cls._sums(torch.tensor(len(x) * pixels), total, squares)

    @classmethod
    def _sums(cls, n: Tensor, total: Tensor, squares: Tensor, mistakes: int = 0) -> Moments:
        quantiles = torch.empty(0, len(LEVELS), dtype=torch.float64)
        return cls(n, total, squares, torch.tensor(mistakes), quantiles, torch.empty(0, dtype=torch.int64))

    @classmethod
    def of_table(cls, x: Tensor, medians: Sequence[int] = ()) -> Moments:
        """Return the sums of a table that may have blanks (NaN), without numbers that are beyond reason.

        `medians`: the columns whose quantiles are reported. Of a column with blanks nothing is reported unless at
        least `FEWEST` of its values are known.
        """
        at_once = max(COLUMNS, NUMBERS // max(1, len(x)))  # all columns of a small table
        parts = []
        for first in range(0, max(1, x.shape[1]), at_once):
            end = first + at_once
            places = [place - first for place in medians if first <= place < end]
            parts.append(cls._of_columns(columns_of(x, first, end), places))
        return cls(
            torch.cat([part.n for part in parts]),
            torch.cat([part.total for part in parts]),
            torch.cat([part.squares for part in parts]),
            torch.stack([part.mistakes for part in parts]).sum(),
            torch.cat([part.quantiles for part in parts]),
            torch.cat([part.known for part in parts]),
        )

    @classmethod
    def _of_columns(cls, x: Tensor, places: list[int]) -> Moments:
        """Return the sums of some columns."""
        mistakes = beyond_reason(x)
        counted = ~(mistakes | x.isnan())
        if counted.all():
            moments = cls.of(x)
        else:
            counted &= ~(x.isnan().any(0) & (counted.sum(0) < FEWEST))
            values = torch.where(counted, x, 0.0).double()
            moments = cls._sums(counted.sum(0), values.sum(0), values.square().sum(0), int(mistakes.sum()))
        if not places:
            return moments
        quantiles = torch.stack([_quantiles(x[:, place][counted[:, place]].double()) for place in places])
        return replace(moments, quantiles=quantiles, known=moments.n[places])

    def weighted(self, share: float) -> Moments:
        """Return the sums as if only a share of the rows stood behind them."""
        n, total, squares, known = (t * share for t in (self.n, self.total, self.squares, self.known))
        return replace(self, n=n, total=total, squares=squares, known=known)

    def tree(self) -> Tree:
        """Return the numbers as they are sent."""
        tree = {"count": self.n, "sum": self.total, "square": self.squares, "mistakes": self.mistakes}
        return tree | ({"quantiles": self.quantiles, "known": self.known} if len(self.known) else {})

    @classmethod
    def of_tree(cls, tree: Tree) -> Moments:
        """Return the moments that a site sent."""
        moments = cls._sums(tree["count"], tree["sum"], tree["square"], int(tree["mistakes"]))
        if "quantiles" not in tree:
            return moments
        return replace(moments, quantiles=tree["quantiles"], known=tree["known"])


def _quantiles(values: Tensor) -> Tensor:
    """Return the values at all levels; zeros without any."""
    if not len(values):
        return torch.zeros(len(LEVELS), dtype=torch.float64)
    ordered = values.sort().values
    return ordered[(LEVELS * (len(ordered) - 1)).round().long()]


def columns_of(x: Tensor, first: int, end: int) -> Tensor:
    """Return some columns of a table, which need not be in memory as a whole."""
    if not isinstance(x, LazyRows):
        return x[:, first:end]
    return torch.cat([part[:, first:end] for part in blocks(x)])


def beyond_reason(x: Tensor) -> Tensor:
    """Return which cells of a table are so far from a column's other values that they can only be mistakes."""
    if len(x) < 3:
        return torch.zeros_like(x, dtype=torch.bool)
    middle, reach = usual_range(x)
    reach = torch.where(reach > 0, BEYOND_REASON * reach, BEYOND_CONSTANT * middle.abs().clamp(min=1.0))
    return (x - middle).abs() > reach


def usual_range(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the median of every column, and the range of the middle 90 % of its rows, from a sample of them.

    A single extreme value never counts, however few the rows are. Columns without values have neither.
    """
    sample = np.ascontiguousarray(x[:: -(-len(x) // SAMPLE)].numpy().T)
    sample.sort(1)  # NaN is last
    last = np.maximum((~np.isnan(sample)).sum(1) - 1, 0)
    tail = np.minimum(np.maximum(np.ceil(TAIL * last), 1), last // 2).astype(np.int64)
    columns = np.arange(len(sample))
    low, middle, high = (torch.from_numpy(sample[columns, at]) for at in (tail, last // 2, last - tail))
    return middle, high - low
