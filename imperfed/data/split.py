"""How a dataset is divided into sites, and what is kept apart from training."""

from __future__ import annotations

from dataclasses import dataclass

from imperfed.data.partitions.base import Partition
from imperfed.data.partitions.dirichlet import DirichletPartition

DIRICHLET = DirichletPartition()


@dataclass(frozen=True)
class SplitConfig:
    """How a dataset is divided into sites, and what of each site is kept apart from training."""

    sites: int = 4  # K
    partition: Partition = DIRICHLET  # who gets which rows; its parameters are the section [partition]
    test: float = 0.2  # share of each site's rows on which it is measured; 0 for data without true classes
    validation: float = 0.0  # label: share of all rows, at no site, on which settings are chosen
    standardise: bool = False  # images: every channel to mean 0 and spread 1, as the columns of tables always are
    common_test: bool = False  # every site is measured on the official test set, and `test` is not used
    trusted: float = 0.0  # share of all rows, drawn i.i.d., that only the server holds, with their true classes
    public: float = 0.2  # share of the test inputs that the server may look at, taken away from evaluation
