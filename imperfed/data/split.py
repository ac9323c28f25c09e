"""How a dataset is divided into sites, and what is held out from training."""

from __future__ import annotations

from dataclasses import dataclass

from imperfed.data.partitions.base import Partition
from imperfed.data.partitions.dirichlet import DirichletPartition

DIRICHLET = DirichletPartition()


@dataclass(frozen=True)
class SplitConfig:
    """How a dataset is divided into sites, and what is held out from training."""

    sites: int = 4  # K
    partition: Partition = DIRICHLET  # which site gets which rows; parameters in the section [partition]
    test: float = 0.2  # share of each site's rows on which it is tested; 0 for data without true classes
    validation: float = 0.0  # share of each site's training rows that it holds out to judge rounds; label: of all rows
    standardise: bool = False  # images: scale every channel to mean 0 and deviation 1, as is always done with tables
    common_test: bool = False  # every site is tested on the official test set, and `test` is not used
    trusted: float = 0.0  # share of all rows, drawn i.i.d., that only the server holds, with their true classes
    public: float = 0.2  # share of the test inputs that the server may see, removed from evaluation
