"""The base classes of partitions: rules by which the rows of a dataset are assigned to sites."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from imperfed.core.errors import DataError, UsageError
from imperfed.data.generator import DataGenerator, Index

Tasks = tuple[Index, Index]
"""The task of every class, and of every site."""


@dataclass(frozen=True)
class UnassignedRows:
    """All that a partition may use: rows that belong to no site yet."""

    count: int
    classes: tuple[str, ...]
    y: Index | None = None
    """The one true class of every row; None if it is unknown, or if a row may have several."""
    column: Index | None = None
    """The site that the dataset names for every row."""

    def true_classes(self, partition: str) -> Index:
        """Return the true class of every row, or raise an error if there is none."""
        if self.y is None:
            raise DataError(
                f"partition = {partition} needs one true class per row, which this dataset does not have; "
                "use iid, quantity or column"
            )
        return self.y


@dataclass(frozen=True)
class Partition(DataGenerator):
    """A way to turn a dataset into sites. Those that divide rows among sites are `RowPartition`s."""

    def tasks_of(self, classes: tuple[str, ...], sites: int) -> Tasks | None:
        """Return the tasks, disjoint sets of classes of which each site has one; None if the partition has no tasks."""
        return None


@dataclass(frozen=True)
class RowPartition(Partition):
    """A partition in the strict sense: no row is held by two sites."""

    @abstractmethod
    def divide(self, rows: UnassignedRows, sites: int, generator: np.random.Generator) -> list[Index]:
        """Return the row numbers of each site. They are disjoint, and rows may be left out."""


def check_sites(sites: int, rows: int) -> None:
    """Refuse a number of sites that cannot all have rows."""
    if sites < 1:
        raise UsageError(f"sites must be at least 1; got {sites}")
    if sites > rows:
        raise UsageError(f"{sites} sites but only {rows} rows; lower sites")
