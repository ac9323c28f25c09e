"""Wrong labels, made from true ones (FB-NLL, Sec. II). Which labels are wrong is known to the oracle alone.

class-independent   a share of a site's rows, whatever their class, all get one label of another task
class-dependent     as many rows, but of one class of the site's task (then of a next one), all get one such label
uniform             a site is noisy with probability rho; then its rate is drawn from U(tau, 1), and so many labels
                    are drawn anew from all C classes, the true one among them (Eq. 1)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from imperfed.core.errors import DataError, UsageError, unknown
from imperfed.core.labels import Exact
from imperfed.data.dataset import Dataset
from imperfed.data.tasks import Tasks

if TYPE_CHECKING:
    from imperfed.data.candidates import LabelConfig

Index = npt.NDArray[np.int64]

NOISES = ("none", "class-independent", "class-dependent", "uniform")


def has_noise(labelling: LabelConfig, dataset: Dataset) -> bool:
    """Whether the sites are told one class an example that may be wrong."""
    return labelling.noise != "none" or dataset.given is not None


def tell_exactly(
    dataset: Dataset,
    labelling: LabelConfig,
    sites: Sequence[Tensor],
    tasks: Tasks | None,
    generator: np.random.Generator,
) -> tuple[Exact, dict[str, Any]]:
    """One class a row; and for the record, what noise there is and the share of wrong labels at each site."""
    told = dataset.y if dataset.given is None else dataset.given
    if told is None:
        raise DataError(f"{dataset.name}: exact labels were asked for, but the data hold candidate sets only")
    labels = Exact(told, len(dataset.classes))
    if not has_noise(labelling, dataset):
        return labels, {"labels": "exact"}
    if dataset.given is not None and labelling.noise != "none":
        raise UsageError(f"the labels of {dataset.name} come with the errors of annotators; leave noise = none")
    if dataset.y is None and dataset.given is not None:
        return labels, {"labels": "exact", "noise": "given"}
    if dataset.y is None or dataset.y.ndim > 1:
        raise UsageError(f"{dataset.name}: noise is made from one true class an example, which the data do not have")
    y, rows = dataset.y.numpy(), [held.numpy() for held in sites]
    if dataset.given is None:
        labels = Exact(torch.from_numpy(corrupt(labelling, y, labels.classes, rows, tasks, generator)), labels.classes)
    wrong = labels.values.numpy() != y
    made = "given" if dataset.given is not None else labelling.noise
    return labels, {"labels": "exact", "noise": made, "noise_rates": [float(wrong[held].mean()) for held in rows]}


def corrupt(
    labelling: LabelConfig,
    y: Index,
    classes: int,
    sites: Sequence[Index],
    tasks: Tasks | None,
    generator: np.random.Generator,
) -> Index:
    """The labels given to all rows: those of the sites' training rows corrupted, site by site."""
    if labelling.noise not in NOISES:
        raise unknown("noise", labelling.noise, NOISES)
    for name in ("noise_rate", "noisy_sites", "noise_floor"):
        if not 0 <= getattr(labelling, name) <= 1:
            raise UsageError(f"labels.{name} is a share and must lie in 0 .. 1; given: {getattr(labelling, name)}")
    given = y.copy()
    for k, rows in enumerate(sites):
        if labelling.noise == "uniform":
            given[rows] = uniform(y[rows], classes, labelling.noisy_sites, labelling.noise_floor, generator)
        elif labelling.noise != "none":
            if tasks is None or tasks[0].max() == 0:
                raise UsageError(
                    f"noise = {labelling.noise} gives labels of another task, and this split has no tasks; set "
                    "partition = tasks, or noise = uniform"
                )
            own = tasks[0] == tasks[1][k]
            flip = class_independent if labelling.noise == "class-independent" else class_dependent
            given[rows] = flip(y[rows], own, labelling.noise_rate, generator)
    return given


def class_independent(y: Index, own: npt.NDArray[np.bool_], rate: float, generator: np.random.Generator) -> Index:
    """round(rate n) rows, drawn uniformly, all to one label of a class that is not the site's own."""
    chosen = generator.permutation(len(y))[: round(rate * len(y))]
    return _to_one_label(y, chosen, own, generator)


def class_dependent(y: Index, own: npt.NDArray[np.bool_], rate: float, generator: np.random.Generator) -> Index:
    """As many rows, but all those of one own class before any of the next, all to one label of another task."""
    classes = generator.permutation(np.flatnonzero(own))
    in_turn = np.concatenate([generator.permutation(np.flatnonzero(y == c)) for c in classes])
    return _to_one_label(y, in_turn[: round(rate * len(y))], own, generator)


def uniform(y: Index, classes: int, rho: float, tau: float, generator: np.random.Generator) -> Index:
    """With probability rho a rate from U(tau, 1), and each label drawn anew with that probability."""
    noisy, rate = generator.random() < rho, generator.uniform(tau, 1)  # Eq. 1
    redrawn = generator.random(len(y)) < rate * noisy
    return np.where(redrawn, generator.integers(classes, size=len(y)), y)


def _to_one_label(y: Index, chosen: Index, own: npt.NDArray[np.bool_], generator: np.random.Generator) -> Index:
    given = y.copy()
    given[chosen] = generator.choice(np.flatnonzero(~own))
    return given
