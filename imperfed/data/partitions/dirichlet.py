"""Classes in unequal proportions, controlled by one number (pFedPLL: beta 0.5; pFedMo: 0.05, 0.1 and 1).

The papers do not say what they do with a site that gets no rows: `min_size` is our addition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from imperfed.core.errors import UsageError
from imperfed.data.generator import Index
from imperfed.data.partitions.base import RowPartition, UnassignedRows, check_sites

TRIES = 1000
"""Draws of proportions before giving up; a try is cheap, because only the proportions are drawn again."""


@dataclass(frozen=True)
class DirichletPartition(RowPartition):
    """All rows; each site's share of every class is drawn from Dir(beta)."""

    name: ClassVar[str] = "dirichlet"
    beta: float = 0.5  # the smaller, the more the sites differ
    min_size: int = 10  # fewest rows of a site; proportions are drawn again until every site has that many

    def __post_init__(self) -> None:
        if not (self.beta > 0 and math.isfinite(self.beta)):
            raise UsageError(f"beta must be a positive number; got {self.beta}")

    def divide(self, rows: UnassignedRows, sites: int, generator: np.random.Generator) -> list[Index]:
        y = rows.true_classes(self.name)
        check_sites(sites, rows.count)
        _, of_class, counts = np.unique(y, return_inverse=True, return_counts=True)
        ends = self._draw_ends(counts, sites, generator)
        pools = [generator.permutation(np.flatnonzero(of_class == c)) for c in range(len(counts))]
        parts = [np.split(pool, cuts) for pool, cuts in zip(pools, ends[:, :-1], strict=True)]
        return [np.concatenate([part[k] for part in parts]) for k in range(sites)]

    def _draw_ends(self, counts: Index, sites: int, generator: np.random.Generator) -> Index:
        """Return where each site's part of the rows of each class ends, [classes, sites]."""
        rows = int(counts.sum())
        facts = f"beta = {self.beta}, sites = {sites}, min_size = {self.min_size}, {rows} rows"
        if sites * self.min_size > rows:
            raise UsageError(
                f"{sites} sites of {self.min_size} rows each are more rows than there are ({facts}); "
                "lower sites or min_size"
            )
        for _ in range(TRIES):
            shares = generator.dirichlet(np.full(sites, self.beta), size=len(counts))
            ends = (np.cumsum(shares, axis=1) * counts[:, None]).astype(np.int64)
            ends[:, -1] = counts
            if np.diff(ends, axis=1, prepend=0).sum(0).min() >= max(self.min_size, 1):
                return ends
        raise UsageError(
            f"none of {TRIES} draws gave every site enough rows ({facts}); raise beta, or lower sites or min_size"
        )
