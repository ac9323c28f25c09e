"""Which rows of a dataset each site holds. Every partition returns one array of row numbers a site, all disjoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from imperfed.core.errors import DataError, UsageError, unknown
from imperfed.data.tasks import by_task, task_of_classes

Index = npt.NDArray[np.int64]

PARTITIONS = ("iid", "dirichlet", "classes", "quantity", "column", "tasks")

TRIES = 1000
"""Draws of Dirichlet proportions before giving up; only the proportions are redrawn, so that a try costs little."""


@dataclass(frozen=True)
class SplitConfig:
    """How a dataset is cut into sites, and what of each site is kept apart from training."""

    sites: int = 4  # K
    partition: str = "dirichlet"
    beta: float = 0.5  # dirichlet: the smaller, the less alike the sites
    min_size: int = 10  # dirichlet: fewest rows a site
    per_site: int = 3  # classes: how many a site holds
    cover: bool = True  # classes: every class is held by some site, where there is room for all
    sizes: tuple[int, ...] = ()  # quantity: one size a site; they count as shares of all rows
    tasks: int = 2  # tasks: number of disjoint sets of classes; every site holds the classes of one
    task_of: tuple[int, ...] = ()  # tasks: the task of every class; empty: see data/tasks.py
    impurity: float = 0.0  # tasks: share of each task's rows that is spread over all sites
    test: float = 0.2  # share of each site's rows on which it is measured; 0 for data without true classes
    validation: float = 0.0  # label: share of all rows, at no site, on which settings are chosen
    standardise: bool = False  # images: every channel to mean 0 and spread 1, as the columns of tables always are
    common_test: bool = False  # every site is measured on the official test set, and `test` is not used
    trusted: float = 0.0  # share of all rows, drawn i.i.d., that only the server holds, with their true classes
    public: float = 0.2  # share of the test inputs that the server may look at, taken away from evaluation


def partition(
    split: SplitConfig,
    rows: int,
    y: Index | None,
    column: Index | None,
    generator: np.random.Generator,
    task_of: Index | None = None,
) -> list[Index]:
    """The rows of each site, as `split` says; `task_of` is the task of every class, where it says tasks."""
    if split.partition not in PARTITIONS:
        raise unknown("partition", split.partition, [*PARTITIONS, "label"])
    if split.partition == "column":
        if column is None:
            raise DataError("the dataset names no site for its rows; partition = column needs such a column")
        return by_column(column)
    if split.partition == "iid":
        return iid(rows, split.sites, generator)
    if split.partition == "quantity":
        return quantity(rows, split.sites, split.sizes, generator)
    if y is None or y.ndim > 1:
        raise DataError(
            f"partition = {split.partition} goes by one true class a row, which this dataset does not have; "
            "use iid, quantity or column"
        )
    if split.partition == "tasks":
        task_of = task_of_classes(range(y.max() + 1), split.tasks) if task_of is None else task_of
        return by_task(y, task_of, split.sites, split.impurity, generator)
    if split.partition == "dirichlet":
        return dirichlet(y, split.sites, split.beta, split.min_size, generator)
    return x_classes(y, split.sites, split.per_site, split.cover, generator)


def iid(rows: int, sites: int, generator: np.random.Generator) -> list[Index]:
    """All rows, dealt at random; sizes differ by one at most."""
    _check_sites(sites, rows)
    return np.array_split(generator.permutation(rows), sites)


def quantity(rows: int, sites: int, sizes: Sequence[int], generator: np.random.Generator) -> list[Index]:
    """All rows, dealt at random in proportion to `sizes`; exactly `sizes` where they add up to the number of rows."""
    _check_sites(sites, rows)
    if len(sizes) != sites or min(sizes) <= 0:
        raise UsageError(f"sizes must be {sites} positive numbers, one a site; given: {list(sizes)}")
    # Integers only: the cuts of sizes that add up to `rows` must be exact.
    cuts = [rows * sum(sizes[:k]) // sum(sizes) for k in range(1, sites)]
    parts = np.split(generator.permutation(rows), cuts)
    empty = [k for k, part in enumerate(parts) if not len(part)]
    if empty:
        raise UsageError(
            f"sizes {list(sizes)} leave site {empty[0]} without any of the {rows} rows; make its size larger"
        )
    return parts


def dirichlet(y: Index, sites: int, beta: float, min_size: int, generator: np.random.Generator) -> list[Index]:
    """All rows; class by class in proportions from Dir(beta), redrawn until every site has `min_size` rows."""
    rows = len(y)
    _check_sites(sites, rows)
    if not (beta > 0 and math.isfinite(beta)):
        raise UsageError(f"beta must be a positive number; given: {beta}")
    facts = f"beta = {beta}, sites = {sites}, min_size = {min_size}, {rows} rows"
    if sites * min_size > rows:
        raise UsageError(
            f"{sites} sites of {min_size} rows each are more than there are ({facts}); lower sites or min_size"
        )
    _, of_class, counts = np.unique(y, return_inverse=True, return_counts=True)
    for _ in range(TRIES):
        shares = generator.dirichlet(np.full(sites, beta), size=len(counts))
        ends = (np.cumsum(shares, axis=1) * counts[:, None]).astype(np.int64)
        ends[:, -1] = counts
        if np.diff(ends, axis=1, prepend=0).sum(0).min() >= max(min_size, 1):
            break
    else:
        raise UsageError(
            f"no draw out of {TRIES} gave every site its rows ({facts}); raise beta, or lower sites or min_size"
        )
    pools = [generator.permutation(np.flatnonzero(of_class == c)) for c in range(len(counts))]
    parts = [np.split(pool, cuts) for pool, cuts in zip(pools, ends[:, :-1], strict=True)]
    return [np.concatenate([part[k] for part in parts]) for k in range(sites)]


def x_classes(y: Index, sites: int, per_site: int, cover: bool, generator: np.random.Generator) -> list[Index]:
    """`per_site` classes a site and sites of equal size; rows for which there is no room are left out.

    The rows of a class are dealt evenly to the sites that hold it. The site that gets fewest sets the size of all; the
    others take as evenly from their classes as they can.
    """
    _check_sites(sites, len(y))
    present, of_class, counts = np.unique(y, return_inverse=True, return_counts=True)
    if not 1 <= per_site <= len(present):
        raise UsageError(f"per_site must lie in 1 .. {len(present)}, the classes in the data; given: {per_site}")
    holds = deal_classes(len(present), sites, per_site, cover, generator)
    pools: list[list[Index]] = [[] for _ in range(sites)]
    for c, rows in enumerate(counts):
        holders = np.flatnonzero(holds[:, c])
        if len(holders) > rows:
            raise UsageError(
                f"{len(holders)} sites would share the {rows} rows of class {present[c]}; lower sites or per_site"
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
    """Which site holds which class, [sites, classes]; to cover, each site takes the classes least held before it."""
    holds = np.zeros((sites, classes), dtype=np.bool_)
    for site in range(sites):
        held = holds.sum(0) if cover else np.zeros(classes)
        holds[site, np.lexsort((generator.random(classes), held))[:per_site]] = True
    return holds


def by_column(column: Index) -> list[Index]:
    """All rows; one site for every value of the column, in the order of the values."""
    return [np.flatnonzero(column == value) for value in np.unique(column)]


def _evenly(pool: list[Index], size: int) -> Index:
    """`size` rows out of a site's pool, the same number of every class while it lasts."""
    turn = np.concatenate([np.arange(len(part)) for part in pool])
    return np.concatenate(pool)[np.argsort(turn, kind="stable")[:size]]


def _check_sites(sites: int, rows: int) -> None:
    if sites < 1:
        raise UsageError(f"sites must be at least 1; given: {sites}")
    if sites > rows:
        raise UsageError(f"{sites} sites but only {rows} rows; lower sites")
