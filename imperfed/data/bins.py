"""Bins of every column of a table, from counts over a grid that sites send instead of values.

The grid is the same everywhere, in standard deviations from the mean, which scaling has learned before. It is fine
where most values lie and coarse far away. Counts of different sites are added up; the edges of bins are quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.data.federate import FederatedData

REACH, BEND = 8.0, 4.0
"""The last line of the grid on either side, and how much finer than there it is in the middle: cosh(BEND) times."""
LINES = (REACH * torch.linspace(-BEND, BEND, 128, dtype=torch.float64).sinh() / math.sinh(BEND)).float()
"""The lines of the grid: 0.02 apart at the mean, 0.07 at one standard deviation, 0.5 at eight."""
CELLS = len(LINES) + 1
"""Below the first line, between two lines, and above the last one."""
CENTRES = torch.cat([LINES[:1], (LINES[1:] + LINES[:-1]) / 2, LINES[-1:]])
"""Where the values of a cell are taken to be."""
ROUNDS = 5
"""How often cells with more values than a bin should have are cut to that number, which cutting makes smaller."""


def count_cells(x: Tensor) -> Tensor:
    """Return how many values of each column lie in each cell of the grid, [columns, CELLS]."""
    cells = (torch.bucketize(values, LINES) for values in x.T.contiguous())
    return torch.stack([torch.bincount(cell, minlength=CELLS) for cell in cells]).int()


def edges_of(sites: Iterable[Tensor], bins: int) -> Tensor:
    """Return the edges of the bins of each column, [columns, bins + 1], from the counts of all sites.

    They are quantiles of the values, where a cell counts as one bin at most: a column that is 0 in most rows still has
    bins among its other values. A column with few values has fewer bins; its last edges repeat one another.
    """
    counts = torch.stack(list(sites)).sum(0)
    rows = counts.sum(1, keepdim=True)
    if (outside := 2 * counts[:, [0, -1]].sum(1) > rows[:, 0]).any():
        raise DataError(
            f"input {int(outside.nonzero()[0])}: most values are more than {REACH:g} away from 0; bins need inputs "
            "that are standardised, which inputs.standardise = true does"
        )
    for _ in range(ROUNDS):
        counts = counts.minimum(-(-counts.sum(1, keepdim=True) // bins))
    counted = counts.cumsum(1).double()
    levels = torch.linspace(0, 1, bins + 1, dtype=torch.float64) * (counted[:, -1:] - 1)
    return CENTRES[torch.searchsorted(counted, levels, right=True)]


def with_bins(data: FederatedData, bins: int) -> FederatedData:
    """Return the data with the edges of so many bins per column, learned from the training rows unless they are known.

    0: bins are not wanted. Only tables have columns; and where rows are elsewhere, only their sites can count.
    """
    federation = data.federation
    if not bins or len(data.scale.edges) or federation.x.ndim != 2 or federation.elsewhere:
        return data
    counts = (count_cells(federation.inputs(a, b)) for a, b in pairwise(federation.starts))
    return replace(data, scale=replace(data.scale, edges=edges_of(counts, bins)))
