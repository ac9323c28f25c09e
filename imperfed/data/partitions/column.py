"""The sites that a column of the dataset names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from imperfed.core.errors import DataError
from imperfed.data.generator import Index
from imperfed.data.partitions.base import RowPartition, UnassignedRows


@dataclass(frozen=True)
class ColumnPartition(RowPartition):
    """All rows; one site per value of the dataset's own column, in the order of the values."""

    name: ClassVar[str] = "column"

    def divide(self, rows: UnassignedRows, sites: int, generator: np.random.Generator) -> list[Index]:
        if rows.column is None:
            raise DataError("the dataset names no site for its rows; partition = column needs such a column")
        return [np.flatnonzero(rows.column == value) for value in np.unique(rows.column)]
