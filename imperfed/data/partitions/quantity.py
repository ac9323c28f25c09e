"""Sites of unequal size that all draw from one population (pFedMo: sizes 5000, 12500, 17500, 25000)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from imperfed.core.errors import UsageError
from imperfed.data.generator import Index
from imperfed.data.partitions.base import RowPartition, UnassignedRows, check_sites


@dataclass(frozen=True)
class QuantityPartition(RowPartition):
    """All rows, assigned at random in proportion to sizes; exactly those sizes if they add up to the number of rows."""

    name: ClassVar[str] = "quantity"
    sizes: tuple[int, ...] = ()  # one per site; only their proportions matter

    def divide(self, rows: UnassignedRows, sites: int, generator: np.random.Generator) -> list[Index]:
        check_sites(sites, rows.count)
        sizes = list(self.sizes)
        if len(sizes) != sites or min(sizes) <= 0:
            raise UsageError(f"sizes must be {sites} positive numbers, one per site; got {sizes}")
        # In integers, so that sizes that add up to the number of rows are met exactly.
        cuts = [rows.count * sum(sizes[:k]) // sum(sizes) for k in range(1, sites)]
        parts = np.split(generator.permutation(rows.count), cuts)
        empty = [k for k, part in enumerate(parts) if not len(part)]
        if empty:
            raise UsageError(
                f"sizes {sizes} leave site {empty[0]} without any of the {rows.count} rows; make its size larger"
            )
        return parts
