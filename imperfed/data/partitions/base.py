"""What a partition is: a rule by which the rows of a dataset come to sites."""

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
    """All that a partition may go by: rows that belong to no site yet."""

    count: int
    classes: tuple[str, ...]
    y: Index | None = None
    """The one true class of every row; None where it is not known, or where a row may have several."""
    column: Index | None = None
    """The site that the dataset names for every row."""

    def true_classes(self, partition: str) -> Index:
        """Return the true class of every row, or raise an error where there is none to go by."""
        if self.y is None:
            raise DataError(
                f"partition = {partition} goes by one true class per row, which this dataset does not have; "
                "use iid, quantity or column"
            )
        return self.y


@dataclass(frozen=True)
class Partition(DataGenerator):
    """A way to make sites of a dataset. What divides rows among sites is a `RowPartition`."""

    def tasks_of(self, classes: tuple[str, ...], sites: int) -> Tasks | None:
        """Return the tasks of a partition that knows any: disjoint sets of classes, one for each site."""
        return None


@dataclass(frozen=True)
class RowPartition(Partition):
    """A partition in the strict sense: no row is at two sites."""

    @abstractmethod
    def divide(self, rows: UnassignedRows, sites: int, generator: np.random.Generator) -> list[Index]:
        """Return the row numbers of each site. They are disjoint; rows may be left out."""


def check_sites(sites: int, rows: int) -> None:
    """Refuse a number of sites that cannot all have rows."""
    if sites < 1:
        raise UsageError(f"sites must be at least 1; given: {sites}")
    if sites > rows:
        raise UsageError(f"{sites} sites but only {rows} rows; lower sites")
