"""A few classes at each site (pFedMo: 3, 6 and 9 of ten). Covering all classes (`cover`) is our addition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from imperfed.core.errors import UsageError
from imperfed.data.generator import Index
from imperfed.data.partitions.base import RowPartition, UnassignedRows, check_sites


@dataclass(frozen=True)
class ClassesPartition(RowPartition):
    """A fixed number of classes at each site, and sites of equal size; rows that do not fit are left out.

    The rows of a class are divided evenly among the sites that hold it. The site with the fewest rows sets the size of
    all sites; the others draw as evenly from their classes as they can.
    """

    name: ClassVar[str] = "classes"
    per_site: int = 3  # x, the number of classes at a site
    cover: bool = True  # every class is held by some site, if there is room for all

    def divide(self, rows: UnassignedRows, sites: int, generator: np.random.Generator) -> list[Index]:
        y = rows.true_classes(self.name)
        check_sites(sites, len(y))
        present, of_class, counts = np.unique(y, return_inverse=True, return_counts=True)
        if not 1 <= self.per_site <= len(present):
            raise UsageError(f"per_site must lie in 1 .. {len(present)}, the classes in the data; got {self.per_site}")
        holds = deal_classes(len(present), sites, self.per_site, self.cover, generator)
        pools: list[list[Index]] = [[] for _ in range(sites)]
        for c, count in enumerate(counts):
            holders = np.flatnonzero(holds[:, c])
            if len(holders) > count:
                raise UsageError(
                    f"{len(holders)} sites would share the {count} rows of class {present[c]}; lower sites or per_site"
                )
            if len(holders):
                dealt = np.array_split(generator.permutation(np.flatnonzero(of_class == c)), len(holders))
                for site, part in zip(holders, dealt, strict=True):
                    pools[site].append(part)
        size = min(sum(len(part) for part in pool) for pool in pools)
        return [_evenly(pool, size) for pool in pools]


def deal_classes(
    classes: int, sites: int, per_site: int, cover: bool, generator: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Return which site holds which class, [sites, classes].

    To cover all classes, each site takes those that the fewest sites before it hold.
    """
    holds = np.zeros((sites, classes), dtype=np.bool_)
    for site in range(sites):
        held = holds.sum(0) if cover else np.zeros(classes)
        holds[site, np.lexsort((generator.random(classes), held))[:per_site]] = True
    return holds


def _evenly(pool: list[Index], size: int) -> Index:
    """Return `size` rows out of a site's pool, the same number of every class while they last."""
    turn = np.concatenate([np.arange(len(part)) for part in pool])
    return np.concatenate(pool)[np.argsort(turn, kind="stable")[:size]]
