"""Which rows of a dataset belong to which site, and which are for tests, for validation, public or at the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from imperfed.core.errors import DataError, UsageError
from imperfed.data.dataset import Dataset
from imperfed.data.generator import Index
from imperfed.data.partitions.base import RowPartition, UnassignedRows
from imperfed.data.split import SplitConfig
from imperfed.data.trusted import set_apart

STREAMS = {"partition": 0, "test": 1, "public": 2, "sets": 3, "trusted": 4, "groups": 5, "noise": 6, "attribute": 9}
"""Every purpose draws from its own stream, so that changing, say, the candidate sets leaves the split unchanged."""


@dataclass(frozen=True)
class RowSplit:
    """Which site gets which rows of the dataset, and what belongs to no site."""

    train: list[Tensor]
    """Row numbers, one tensor per site."""
    test: list[Tensor]
    public: Tensor
    """The inputs themselves, not row numbers."""
    public_from: str
    common: Tensor | None = None
    """Row numbers in the official test set, without the public inputs."""
    common_test: bool = False
    """Whether every site is tested on the official test set."""
    trusted: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    """Row numbers that only the server holds."""


def cut_rows(dataset: Dataset, split: SplitConfig, data_seed: int) -> RowSplit:
    """Return the rows of each site, its test rows, and the public inputs."""
    assert isinstance(split.partition, RowPartition)
    check_shares(split)
    if split.common_test and dataset.test_x is None:
        raise DataError(f"{dataset.name}: there is no official test set to test every site on; set common_test = false")
    test_share = 0.0 if split.common_test else split.test
    if dataset.y is None and test_share:
        raise DataError(
            f"{dataset.name}: a site is tested on rows whose true class is known, and the data hold none; "
            "set test = 0 to train without test sets"
        )
    y, column = (None if t is None else t.numpy() for t in (dataset.y, dataset.column))
    trusted, rest = set_apart(dataset, split.trusted, stream(data_seed, "trusted"))
    # Where a row may have several classes, no partition can use them.
    y, column = (None if t is None or t.ndim > 1 else t[rest] for t in (y, column))
    unassigned = UnassignedRows(len(rest), dataset.classes, y, column)
    parts = split.partition.divide(unassigned, split.sites, stream(data_seed, "partition"))
    sites = [rest[rows] for rows in parts]
    train, test = keep_apart(dataset, test_share, sites, site_names(len(sites)), data_seed)
    cut = take_public(dataset, split, train, test, stream(data_seed, "public"))
    return replace(cut, trusted=torch.from_numpy(trusted), common_test=split.common_test)


def check_shares(split: SplitConfig) -> None:
    """Refuse shares that leave nothing to train on."""
    for name in ("test", "public", "trusted", "validation"):
        if not 0 <= (share := getattr(split, name)) < 1:
            raise UsageError(f"{name} is a share and must be at least 0 and below 1; got {share}")


def keep_apart(
    dataset: Dataset,
    share: float,
    sites: Sequence[Index],
    names: Sequence[str],
    data_seed: int,
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the rows that each site trains on, in order, and those it is tested on, in random order."""
    train, test = [], []
    generator, tested = stream(data_seed, "test"), None
    if dataset.group is not None:
        # Drawn once for all sites, because two of them may hold rows of the same group.
        groups = torch.from_numpy(stream(data_seed, "groups").permutation(np.unique(dataset.group.numpy())))
        tested = torch.isin(dataset.group, groups[: share_of(share, len(groups))])
    for name, held in zip(names, sites, strict=True):
        rows, where = torch.from_numpy(held), f"{dataset.name}, {name}"
        own, kept = cut_site(rows, share, generator, None if tested is None else tested[rows], where, "use fewer sites")
        train.append(own)
        test.append(kept)
    return train, test


def cut_site(
    rows: Tensor, share: float, generator: np.random.Generator, tested: Tensor | None, where: str, fix: str
) -> tuple[Tensor, Tensor]:
    """Return the rows that a site trains on, in order, and those it is tested on, in random order.

    `tested` says for each row whether it is tested on, if that is already decided; otherwise a share of the rows is
    drawn. `fix` is the advice in the error raised when there are too few rows for both.
    """
    order = torch.from_numpy(generator.permutation(len(rows)))
    count = max(1, share_of(share, len(rows))) if share else 0
    held_out = torch.arange(len(rows)) < count if tested is None else tested[order]
    if share and (held_out.all() or not held_out.any()):
        counted = "one row" if len(rows) == 1 else f"its {len(rows)} rows"
        raise DataError(f"{where}: {counted} cannot serve both training and testing; {fix}")
    return rows[order[~held_out]].sort().values, rows[order[held_out]]


def take_public(
    dataset: Dataset, split: SplitConfig, train: list[Tensor], test: list[Tensor], generator: np.random.Generator
) -> RowSplit:
    """Take the public inputs from the official test set or, if there is none, from the test rows of every site."""
    if dataset.test_x is not None and dataset.test_y is not None:
        rows = torch.from_numpy(generator.permutation(len(dataset.test_x)))
        public, common = rows.tensor_split([share_of(split.public, len(rows))])
        return RowSplit(train, test, dataset.test_x[public], "the official test set", common)
    # A site's test rows are in random order already.
    parts = [rows.tensor_split([share_of(split.public, len(rows))]) for rows in test]
    public = torch.cat([rows for rows, _ in parts])
    return RowSplit(train, [kept for _, kept in parts], dataset.x[public], "the test rows of the sites")


def site_names(sites: int) -> tuple[str, ...]:
    """Return site-0, site-1, ..., padded with zeros so that they sort in numerical order."""
    width = len(str(sites - 1))
    return tuple(f"site-{k:0{width}}" for k in range(sites))


def share_of(share: float, rows: int) -> int:
    """Return how many rows the share amounts to, never all of them."""
    return max(0, min(round(share * rows), rows - 1))


def stream(data_seed: int, purpose: str) -> np.random.Generator:
    """Return the random number generator of one purpose."""
    return np.random.default_rng([data_seed, STREAMS[purpose]])
