"""FB-NLL's tables of groups and labels: `python -m studies.fb_nll [groups] [labels]`; both by default.

The paper's tables came without figures, so that only its claims can be compared with ours. The features of a dataset
are computed once and replace its inputs. Needs mnist, cifar10, the labels of CIFAR-10N and the extra `vision`.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from imperfed.core.federation import Federation
from imperfed.core.threads import one_thread
from imperfed.data.corruption.noise import noises
from imperfed.data.dataset import Dataset
from imperfed.data.federate import FederatedData, federate
from imperfed.data.labelling import LabelConfig
from imperfed.data.partitions.iid import IIDPartition
from imperfed.data.partitions.tasks import TasksPartition
from imperfed.data.sources import load
from imperfed.data.split import SplitConfig
from imperfed.engine.conversation import repair_labels
from imperfed.evaluation.evaluator import Evaluator
from imperfed.repairs.fb_nll import FBNLL
from imperfed.repairs.fb_nll.clusters import cluster
from imperfed.repairs.features import features
from studies.controls import corrected_by, means, probe

SITES, SEEDS, TASKS, IMPURITY = 20, (0, 1, 2), (2, 3, 5), 0.1
NOISES = ("class-independent", "class-dependent", "uniform")
NETWORK = "efficientnet-lite0"
CLEAN = 500
"""The number of rows at the server, about 50 per class."""
ROWS = {"mnist": 12000}
"""The number of rows used of a dataset, if not all."""


@cache
def of_features(data: str, phi: str) -> Dataset:
    """Return a dataset whose inputs are features, shaped as images of one pixel, which are not standardised."""
    dataset = load(data)
    rows = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0))[: ROWS.get(data)]
    given = None if dataset.given is None else dataset.given[rows]
    assert dataset.y is not None
    x = features(phi, dataset.x[rows]).float()[..., None, None]
    return Dataset(dataset.name, x, dataset.y[rows], None, dataset.classes, given=given)


def first(dataset: Dataset, n: int) -> Dataset:
    """Return the first n rows of a dataset."""
    assert dataset.y is not None
    return Dataset(dataset.name, dataset.x[:n], dataset.y[:n], None, dataset.classes)


# -- groups ------------------------------------------------------------------------------------------------------------


def mean_features(federation: Federation, groups: int) -> tuple[int, ...]:
    """Group sites as a control: average linkage on the distances between their mean features."""
    means = torch.stack([x.flatten(1).double().mean(0) for x in federation.x.split(federation.sizes())])
    D = torch.cdist(means, means)
    return tuple(cluster(1 - D / D.max(), groups, "average").tolist())


def groups_table() -> Iterator[str]:
    """Yield the table of adjusted Rand indices of the groups against the tasks: mean over the seeds, and worst."""
    yield "| data | features | rows per site | tasks | FB-NLL(-) | ward | centred | mean features |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    settings = (
        ("mnist", "hog", (50, 100, 500)),
        ("cifar10", "hog", (100, 300, 1000)),
        ("cifar10", NETWORK, (100,)),
    )
    plain = FBNLL(correct=False, features="raw")
    for data, phi, sizes in settings:
        for rows in sizes:
            for tasks in TASKS:
                base = replace(plain, groups=tasks)
                kinds = (base, replace(base, linkage="ward"), replace(base, center=True))
                scores: list[list[float | None]] = [[], [], [], []]
                for seed in SEEDS:
                    split = SplitConfig(SITES, TasksPartition(tasks, impurity=IMPURITY), test=0)
                    clean = federate(first(of_features(data, phi), SITES * rows), split, LabelConfig("exact"), seed)
                    evaluator = Evaluator(clean.oracle)
                    groupings = [repair_labels(repair, clean.federation)[0].groups for repair in kinds]
                    groupings.append(mean_features(clean.federation, tasks))
                    for column, groups in zip(scores, groupings, strict=True):
                        column.append(evaluator.rand_index(groups))
                yield f"| {data} | {phi} | {rows} | {tasks} | " + " | ".join(map(spread, scores)) + " |"


# -- labels ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """One row of the table of labels."""

    data: str
    phi: str
    tasks: int
    noise: str

    def federated(self, seed: int) -> FederatedData:
        """Return the federated data with noise."""
        partition = IIDPartition() if self.tasks == 1 else TasksPartition(self.tasks, impurity=IMPURITY)
        dataset = of_features(self.data, self.phi)
        trusted = CLEAN / len(dataset)
        split = SplitConfig(SITES, partition, test=0, trusted=trusted)
        return federate(dataset, split, LabelConfig("exact", noise=noises()[self.noise]()), seed)


SETTINGS = (
    *(Setting("mnist", "hog", tasks, noise) for tasks in TASKS for noise in NOISES),
    Setting("mnist", "hog", 2, "none"),
    *(Setting("cifar10", NETWORK, tasks, noise) for tasks in TASKS for noise in NOISES),
    Setting("cifar10", NETWORK, 2, "none"),
    Setting("cifar10n-worse", NETWORK, 1, "none"),
    Setting("cifar10n-aggre", NETWORK, 1, "none"),
)


def labels_table() -> Iterator[str]:
    """Yield the table of wrong labels in per cent before and after, mean over the seeds, with controls."""
    yield (
        "| data | tasks | noise | before | FB-NLL | precision | recall | damage | estimate off by | phase 2 alone "
        "| Eq. 7 alone | class means | probe |"
    )
    yield "| --- " * 13 + "|"
    for setting in SETTINGS:
        rows = [one_seed(setting, seed) for seed in SEEDS[:2]]
        columns = (statistics.fmean(values) for values in zip(*rows, strict=True))
        cells = ["-" if value != value else f"{100 * value:.1f}" for value in columns]
        noise = "annotators" if setting.data.startswith("cifar10n") else setting.noise
        yield f"| {setting.data} | {setting.tasks} | {noise} | " + " | ".join(cells) + " |"


def one_seed(setting: Setting, seed: int) -> list[float]:
    """Return the figures of one row for one seed of the data."""
    data = setting.federated(seed)
    federation, evaluator, n = data.federation, Evaluator(data.oracle), len(data.federation.x)
    whole = FBNLL(features="raw")
    _, full = repair_labels(whole, federation)
    figures = evaluator.repaired(0, n, full.given, full.decided)
    assert figures is not None
    shares = (figures.noise_before, figures.noise_after, figures.precision, figures.recall, figures.damage)
    rates = data.facts.get("noise_rates", [0.0] * SITES)
    off = statistics.fmean(abs((estimate or 0) - true) for estimate, true in zip(full.noise, rates, strict=True))
    others = [repair_labels(replace(whole, phase1="off"), federation)[1].decided]
    others.append(repair_labels(replace(whole, phase1="off", gate=1.0), federation)[1].decided)
    others += [corrected_by(control, federation, whole.gate) for control in (means, probe)]
    known = [math.nan if share is None else share for share in shares]
    return [*known, off, *(wrong(evaluator, full.given, labels) for labels in others)]


def wrong(evaluator: Evaluator, given: Tensor, labels: Tensor) -> float:
    """Return the share of wrong labels."""
    figures = evaluator.repaired(0, len(given), given, labels)
    assert figures is not None
    assert figures.noise_after is not None
    return figures.noise_after


def spread(values: Sequence[float | None], digits: int = 2) -> str:
    """Format the mean over the seeds, with the lowest in brackets if they differ."""
    known = [value for value in values if value is not None]
    mean, least = statistics.fmean(known), min(known)
    text = f"{mean:.{digits}f}"
    return text if max(known) - least < 0.5 * 10**-digits else f"{text} ({least:.{digits}f})"


TABLES = {"groups": groups_table, "labels": labels_table}


def main(words: Sequence[str]) -> None:
    """Print the requested tables, each line as soon as it is ready."""
    for name in words or TABLES:
        begun = time.perf_counter()
        print(f"\n### {name}\n")
        with one_thread():
            for line in TABLES[name]():
                print(line, flush=True)
        print(f"\n{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
