"""The labels that the sites are given: the truth, noisy labels, candidate sets, or annotations of some classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imperfed.core.errors import DataError, UsageError, unknown
from imperfed.core.labels import Annotated, Candidates, Exact
from imperfed.data.corruption.annotations import annotation_patterns
from imperfed.data.corruption.annotations.auto import AutoAnnotation
from imperfed.data.corruption.annotations.base import AnnotationPattern
from imperfed.data.corruption.candidates.base import CandidateGenerator, Floats
from imperfed.data.corruption.candidates.given_sets import GivenSets
from imperfed.data.corruption.candidates.instance import InstanceSets
from imperfed.data.corruption.noise.base import Noise
from imperfed.data.corruption.noise.no_noise import NoNoise
from imperfed.data.dataset import Dataset
from imperfed.data.partitions.base import Tasks

INSTANCE, CLEAN, AUTO = InstanceSets(), NoNoise(), AutoAnnotation()
KINDS = ("auto", "exact", "candidates", "annotated")

Facts = dict[str, Any]


@dataclass(frozen=True)
class LabelConfig:
    """The labels that the sites are given.

    `kind`: "candidates" uses the candidate sets that `candidates` names; "exact" gives one class per row, the true one
    unless `noise` corrupts it or the data come with labels of their own; "annotated" is for rows that may have several
    classes and gives the truth about the classes that the row's site annotates. "auto" is "annotated" for such rows,
    "exact" where there is noise or the data come with labels of their own, and otherwise "candidates": the sets that
    come with the data, or generated ones.
    """

    kind: str = "auto"
    candidates: CandidateGenerator = INSTANCE  # parameters in the section [candidates]
    noise: Noise = CLEAN  # of exact labels; parameters in the section [noise]
    annotates: AnnotationPattern = AUTO  # annotated; parameters in the section [annotation]
    classes: str = ""  # annotated: classes to learn, comma-separated, or all; empty: those `annotates` names, else all
    attribute_flip: float = 0.3  # probability that a wrong group joins a row's own, for data with a sensitive attribute


def has_noise(labelling: LabelConfig, dataset: Dataset) -> bool:
    """Return whether the sites are given one class per row, which may be wrong."""
    return not isinstance(labelling.noise, NoNoise) or dataset.given is not None


def tell_exactly(
    dataset: Dataset,
    labelling: LabelConfig,
    sites: Sequence[Tensor],
    tasks: Tasks | None,
    data_seed: int,
    generator: np.random.Generator,
) -> tuple[Exact, Facts]:
    """Return one class per row and, for the record, the kind of noise and the share of wrong labels at each site."""
    values = dataset.y if dataset.given is None else dataset.given
    if values is None:
        raise DataError(f"{dataset.name}: exact labels were requested, but the data hold candidate sets only")
    labels = Exact(values, len(dataset.classes))
    if not has_noise(labelling, dataset):
        return labels, {"labels": "exact"}
    if dataset.given is not None and not isinstance(labelling.noise, NoNoise):
        raise UsageError(f"the labels of {dataset.name} already contain annotators' errors; leave noise = none")
    if dataset.y is None and dataset.given is not None:
        return labels, {"labels": "exact", "noise": "given"}
    if dataset.y is None or dataset.y.ndim > 1:
        raise UsageError(f"{dataset.name}: noise needs one true class per row, which the data do not have")
    if dataset.given is None:
        opinions = labelling.noise.opinions(dataset, data_seed)
        values = corrupt(dataset.y, opinions, labelling.noise, labels.classes, sites, tasks, generator)
        labels = replace(labels, values=values)
    wrong = (labels.values != dataset.y).numpy()
    rates = [float(wrong[rows.numpy()].mean()) for rows in sites]
    noise = labelling.noise.name if dataset.given is None else "given"
    return labels, {"labels": "exact", "noise": noise, "noise_rates": rates}


def corrupt(
    truth: Tensor,
    opinions: Floats | None,
    noise: Noise,
    classes: int,
    sites: Sequence[Tensor],
    tasks: Tasks | None,
    generator: np.random.Generator,
) -> Tensor:
    """Return the labels of all rows, with those of the sites' training rows corrupted site by site."""
    y = truth.numpy()
    labels = y.copy()
    for k, site in enumerate(sites):
        rows, own = site.numpy(), None if tasks is None else tasks[0] == tasks[1][k]
        about = None if opinions is None else opinions[rows]
        labels[rows] = noise.corrupt_rows(y[rows], about, classes, own, generator)
    return torch.from_numpy(labels)


def generate_sets(
    dataset: Dataset, labelling: LabelConfig, data_seed: int, generator: np.random.Generator
) -> tuple[Candidates, Facts]:
    """Return the candidate sets of all rows, and how they came about."""
    sets_in_data = labelling.kind == "auto" and dataset.candidates is not None
    chosen = GivenSets() if sets_in_data else labelling.candidates
    sets, facts = chosen.generate(dataset, data_seed, generator)
    return sets, {"labels": "candidates", "sets": chosen.name} | facts


def annotate(
    dataset: Dataset, labelling: LabelConfig, sites: Sequence[Tensor], generator: np.random.Generator
) -> tuple[Annotated, Facts]:
    """Return what each row's site knows about its classes, and how that came about."""
    classes = dataset.classes
    known, title = labelling.annotates.annotate(label_matrix_of(dataset), classes, sites, generator)
    return Annotated(known, len(classes)), {"labels": "annotated", "annotates": title}


def keep_wanted_classes(dataset: Dataset, labelling: LabelConfig) -> Dataset:
    """Return the dataset with only the classes that are to be learned, in the order of the data."""
    wanted = [name.strip() for name in labelling.classes.split(",") if name.strip() not in ("", "all")]
    if not labelling.classes:
        wanted = list(labelling.annotates.named_classes())
    for name in wanted:
        if name not in dataset.classes:
            raise unknown(f"class of {dataset.name}", name, [*dataset.classes, *annotation_patterns()])
    if not wanted:
        return dataset
    y, kept = label_matrix_of(dataset), [c for c, name in enumerate(dataset.classes) if name in wanted]
    classes = tuple(dataset.classes[c] for c in kept)
    test_y = None if dataset.test_y is None else dataset.test_y[:, kept]
    return replace(dataset, y=y[:, kept], test_y=test_y, classes=classes)


def label_matrix_of(dataset: Dataset) -> Tensor:
    """Return the truth of every class of every row, as far as it is known."""
    if dataset.y is None or dataset.y.ndim == 1:
        raise DataError(
            f"{dataset.name}: missing labels need rows that may have several classes: y as a matrix [n, classes] of 1 "
            "(present), 0 (absent) and -1 (not annotated)"
        )
    return dataset.y
