"""Turning a dataset into a federation: what the sites see, what only evaluation may see, and facts about the split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from imperfed.core.errors import DataError, UsageError, unknown
from imperfed.core.federation import Federation
from imperfed.core.labels import Labels
from imperfed.data.attributes import blur, group_facts, leave_unscaled, true_groups
from imperfed.data.dataset import Dataset
from imperfed.data.generator import Index
from imperfed.data.labelling import (
    KINDS,
    Facts,
    LabelConfig,
    annotate,
    generate_sets,
    has_noise,
    keep_wanted_classes,
    tell_exactly,
)
from imperfed.data.oracle import Oracle
from imperfed.data.partitions.base import RowPartition, Tasks, UnassignedRows
from imperfed.data.partitions.column import ColumnPartition
from imperfed.data.partitions.label import LabelPartition
from imperfed.data.scale import Scale
from imperfed.data.split import SplitConfig
from imperfed.data.trusted import set_apart, trust

STREAMS = {"partition": 0, "test": 1, "public": 2, "sets": 3, "trusted": 4, "groups": 5, "noise": 6, "attribute": 9}
"""Every purpose draws from its own stream, so that changing, say, the candidate sets leaves the split unchanged."""


@dataclass(frozen=True)
class FederatedData:
    """A federation, its truth, JSON-serialisable facts about both for log and report, and how inputs were scaled."""

    federation: Federation
    oracle: Oracle
    facts: Facts
    scale: Scale


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


def federate(dataset: Dataset, split: SplitConfig, labelling: LabelConfig, data_seed: int) -> FederatedData:
    """Return sites, labels, test sets and public inputs; the same for the same arguments on any machine."""
    if data_seed < 0:
        raise UsageError(f"data_seed must not be negative; got {data_seed}")
    dataset.check()
    if isinstance(split.partition, LabelPartition):
        return federate_by_label(dataset, split, split.partition, stream(data_seed, "partition"))
    dataset = keep_wanted_classes(dataset, labelling)
    clear, dataset = dataset, blur(dataset, labelling.attribute_flip, stream(data_seed, "attribute"))
    cut = cut_rows(dataset, split, data_seed)
    tasks = split.partition.tasks_of(dataset.classes, split.sites)
    labels, label_origin = label(clear, labelling, cut.train, tasks, data_seed)
    scale = Scale.of(dataset.x, cut.train, split.standardise)
    leave_unscaled(scale.mean, scale.spread, dataset.attribute)
    federation = gather(dataset, cut, labels, scale, site_names(len(cut.train)))
    oracle = replace(
        seal(dataset, cut, scale),
        tasks=() if tasks is None else tuple(tasks[1].tolist()),
        test_group=tested_groups(clear, cut),
    )
    facts = label_origin | facts_of(federation, oracle, cut, len(dataset))
    if dataset.column is not None and not isinstance(split.partition, ColumnPartition):
        facts["sites_not_used"] = len(dataset.column.unique())
    return FederatedData(federation, oracle, facts, scale)


def tested_groups(dataset: Dataset, cut: RowSplit) -> tuple[Tensor, ...]:
    """Return the true groups of the test rows, one tensor per site; nothing if rows name several groups."""
    x, tested = dataset.x, cut.test
    if cut.common_test and dataset.test_x is not None and cut.common is not None:
        x, tested = dataset.test_x, [cut.common] * len(cut.test)
    known = true_groups(x, dataset.attribute)
    return () if known is None else tuple(known[rows] for rows in tested)


def gather(dataset: Dataset, cut: RowSplit, labels: Labels, scale: Scale, sites: tuple[str, ...]) -> Federation:
    """Return what the sites hold: their training rows with the labels they are given."""
    order = torch.cat(cut.train)
    return Federation(
        name=dataset.name,
        x=scale(dataset.x[order]),
        labels=labels.take(order),
        starts=tuple(accumulate((len(rows) for rows in cut.train), initial=0)),
        sites=sites,
        classes=dataset.classes,
        ids=tuple(dataset.ids[row] for row in order.tolist()),
        public=scale(cut.public),
        trusted=trust(dataset, cut.trusted, scale(dataset.x[cut.trusted])),
        attribute=dataset.attribute,
        together=None if dataset.group is None else dataset.group[order],
    ).check()


def federate_by_label(
    dataset: Dataset, split: SplitConfig, partition: LabelPartition, generator: np.random.Generator
) -> FederatedData:
    """Return one site per label, where each row is known by that one label."""
    examples = partition.set_apart(dataset, split, generator)
    scale = Scale.of(dataset.x, (examples.train,))
    test_x = None if dataset.test_x is None else scale(dataset.test_x)
    return FederatedData(*partition.federate(replace(dataset, x=scale(dataset.x), test_x=test_x), examples), scale)


def label(
    dataset: Dataset, labelling: LabelConfig, sites: Sequence[Tensor], tasks: Tasks | None, data_seed: int
) -> tuple[Labels, Facts]:
    """Return the labels that the sites are given for every row of the dataset, and how they came about."""
    if labelling.kind not in KINDS:
        raise unknown("kind of labels", labelling.kind, KINDS)
    several = dataset.y is not None and dataset.y.ndim == 2
    if labelling.kind == "annotated" or (labelling.kind == "auto" and several):
        return annotate(dataset, labelling, sites, stream(data_seed, "sets"))
    if labelling.kind == "exact" or (labelling.kind == "auto" and has_noise(labelling, dataset)):
        labels, origin = tell_exactly(dataset, labelling, sites, tasks, data_seed, stream(data_seed, "noise"))
        return labels, origin if dataset.candidates is None else origin | {"instead_of": "candidates"}
    return generate_sets(dataset, labelling, data_seed, stream(data_seed, "sets"))


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


def seal(dataset: Dataset, cut: RowSplit, scale: Scale) -> Oracle:
    """Return all that is true and hidden from the sites."""
    # Without truth every test set is empty, so any vector will do.
    y = torch.zeros(len(dataset), dtype=torch.int64) if dataset.y is None else dataset.y
    common = None
    if cut.common is not None and dataset.test_x is not None and dataset.test_y is not None:
        common = scale(dataset.test_x[cut.common]), dataset.test_y[cut.common]
    tests = [(scale(dataset.x[rows]), y[rows]) for rows in cut.test]
    if cut.common_test and common is not None:
        tests = [common] * len(cut.test)
    return Oracle(
        truth=None if dataset.y is None else dataset.y[torch.cat(cut.train)],
        test_x=tuple(x for x, _ in tests),
        test_y=tuple(y for _, y in tests),
        common_x=common and common[0],
        common_y=common and common[1],
        one_test=cut.common_test,
    )


def facts_of(federation: Federation, oracle: Oracle, cut: RowSplit, rows: int) -> Facts:
    """Return the split in numbers; they count training rows unless their name says otherwise."""
    at_sites = sum(map(len, cut.train)) + sum(map(len, cut.test)) + (len(cut.public) if cut.common is None else 0)
    at_sites += len(cut.trusted)
    facts: Facts = {
        "rows": federation.sizes(),
        "test_rows": [len(rows) for rows in cut.test],
        "common_test": cut.common_test,
        "common_test_rows": 0 if oracle.common_y is None else len(oracle.common_y),
        "rows_left_out": rows - at_sites,
        "public_rows": len(cut.public),
        "public_from": cut.public_from if len(cut.public) else "nowhere",
        "trusted_rows": len(cut.trusted),
    }
    return facts | label_facts(federation, oracle)


def label_facts(federation: Federation, oracle: Oracle) -> Facts:
    """Return the labels and groups in numbers, and the true classes where they are known."""
    facts = federation.labels.facts(federation.sizes())
    facts |= group_facts(federation.x, federation.attribute)
    if oracle.truth is not None:
        sites = oracle.truth.split(federation.sizes())
        counts = torch.stack([held(y, len(federation.classes)) for y in sites], 1)
        unheld = (counts.sum(1) == 0).nonzero().flatten().tolist()
        facts |= {
            "counts": counts.tolist(),  # [class][site]
            "classes_at_nobody": [federation.classes[c] for c in unheld],
        }
    return facts


def held(y: Tensor, classes: int) -> Tensor:
    """Return the number of rows of each class."""
    return y.bincount(minlength=classes) if y.ndim == 1 else (y == 1).sum(0)


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
