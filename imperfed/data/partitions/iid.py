"""Rows assigned at random, as if all sites drew from one population."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from imperfed.data.generator import Index
from imperfed.data.partitions.base import RowPartition, UnassignedRows, check_sites


@dataclass(frozen=True)
class IIDPartition(RowPartition):
    """All rows, assigned at random; sizes differ by at most one."""

    name: ClassVar[str] = "iid"

    def divide(self, rows: UnassignedRows, sites: int, generator: np.random.Generator) -> list[Index]:
        check_sites(sites, rows.count)
        return np.array_split(generator.permutation(rows.count), sites)
