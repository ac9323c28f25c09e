"""Turning a dataset into a federation: what the sites see, what only evaluation may see, and facts about the split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from imperfed.core.errors import UsageError, unknown
from imperfed.core.federation import Federation
from imperfed.core.labels import Labels
from imperfed.data.attributes import blur, group_facts, leave_unscaled, true_groups
from imperfed.data.dataset import Dataset
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
from imperfed.data.partitions.base import Tasks
from imperfed.data.partitions.column import ColumnPartition
from imperfed.data.partitions.label import LabelPartition
from imperfed.data.row_split import RowSplit, cut_rows, site_names, stream
from imperfed.data.scale import Scale
from imperfed.data.split import SplitConfig
from imperfed.data.trusted import trust


@dataclass(frozen=True)
class FederatedData:
    """A federation, its truth, JSON-serialisable facts about both for log and report, and how inputs were scaled."""

    federation: Federation
    oracle: Oracle
    facts: Facts
    scale: Scale


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
