"""Federations with wrong labels for the studies of label repair: features of a dataset, sites, noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch

from imperfed.core.errors import DataError
from imperfed.core.federation import Federation
from imperfed.core.labels import Exact
from imperfed.data.corruption.noise import noises
from imperfed.data.dataset import Dataset
from imperfed.data.federate import federate
from imperfed.data.labelling import LabelConfig
from imperfed.data.partitions.base import Partition
from imperfed.data.partitions.dirichlet import DirichletPartition
from imperfed.data.partitions.iid import IIDPartition
from imperfed.data.partitions.tasks import TasksPartition
from imperfed.data.sources import load
from imperfed.data.split import SplitConfig
from imperfed.repairs.features import features
from studies.fb_nll import CLEAN, IMPURITY, NETWORK

FLIPS = ("flipped uniformly", "flipped by class")
"""Noise at a stated rate: a wrong label is any other class, or the one class for which its site takes it."""


@dataclass(frozen=True)
class NoisyCell:
    """One split of a dataset over sites, with noise."""

    table: str
    data: str
    phi: str
    noise: str
    """none: as the dataset comes, so people's for CIFAR-10N; one of `FLIPS`; or a noise of the package's."""
    rate: float = 0.0
    """The share of wrong labels at every site; of `FLIPS` only."""
    sites: int = 20
    tasks: int = 1
    rows: int = 0
    """The number of rows of a site on average; 0: all rows of the dataset."""
    clean: int = CLEAN
    split: int = 0

    def federated(self, file: Path | None) -> tuple[Federation, torch.Tensor]:
        """Return what sites and server hold, and the true classes of the sites' rows."""
        whole = of_features(self.data, self.phi, file)
        draw = torch.Generator().manual_seed(self.split if self.rows else 0)
        chosen = torch.randperm(len(whole), generator=draw)[
            : self.sites * self.rows + self.clean if self.rows else None
        ]
        assert whole.y is not None
        given = None if whole.given is None else whole.given[chosen]
        dataset = Dataset(whole.name, whole.x[chosen], whole.y[chosen], None, whole.classes, given=given)
        split = SplitConfig(self.sites, self.partition(), test=0, trusted=self.clean / len(dataset))
        noise = noises()["none" if self.noise in FLIPS else self.noise]()
        data = federate(dataset, split, LabelConfig("exact", noise=noise), self.split)
        assert data.oracle.truth is not None
        found = data.federation
        return flipped(found, self.noise, self.rate, self.split) if self.noise in FLIPS else found, data.oracle.truth

    def partition(self) -> Partition:
        """Return how rows are divided: by tasks; unequally where labels are flipped; else at random."""
        if self.tasks > 1:
            return TasksPartition(self.tasks, impurity=IMPURITY)
        return DirichletPartition() if self.noise in FLIPS else IIDPartition()


@cache
def of_features(data: str, phi: str, file: Path | None) -> Dataset:
    """Return a dataset whose inputs are features; those of a network from a file, if there is one."""
    dataset = load(data)
    assert dataset.y is not None
    if phi == NETWORK and file is not None:
        with np.load(file) as arrays:
            x = torch.from_numpy(arrays["features"]).float()
        if len(x) != len(dataset):
            raise DataError(f"{file}: features of {len(x)} rows; {data} has {len(dataset)}. Make the file again.")
    else:
        x = features(phi, dataset.x).nan_to_num().float()
    # Shaped as images of one pixel, which are not standardised.
    shaped = x[..., None, None]
    return Dataset(dataset.name, shaped, dataset.y.flatten(), None, dataset.classes, given=dataset.given)


def flipped(federation: Federation, kind: str, rate: float, seed: int) -> Federation:
    """Return the federation with this share of each site's labels wrong."""
    draw, parts = torch.Generator().manual_seed(seed), []
    C = len(federation.classes)
    for y in federation.labels.values.split(federation.sizes()):
        shift = torch.randint(1, C, (len(y) if kind == FLIPS[0] else C,), generator=draw)
        other = (y + (shift if kind == FLIPS[0] else shift[y])) % C
        parts.append(torch.where(torch.rand(len(y), generator=draw) < rate, other, y))
    return replace(federation, labels=Exact(torch.cat(parts), C))
