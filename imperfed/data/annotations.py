"""Which classes each site annotates, where a row may have several classes, and what that leaves a site to know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from imperfed.core.errors import DataError, UsageError, unknown
from imperfed.core.labels import Annotated
from imperfed.data.candidates import LabelConfig
from imperfed.data.dataset import Dataset
from imperfed.data.partitions import deal_classes

UNKNOWN = -1
"""Stands in a label matrix where nobody has looked."""

_FOUR_SITES = (
    "Infiltration, Effusion, Atelectasis; Effusion, Atelectasis, Nodule; Atelectasis, Nodule, Consolidation; "
    "Nodule, Consolidation, Pneumothorax"
)
TABLES = {
    "table-1": _FOUR_SITES,
    "table-3": f"{_FOUR_SITES}; Tuberculosis; COVID-19",
    "one-class": f"{_FOUR_SITES}; Cardiomegaly; Emphysema",
}
"""FedPSL's tables I and III; and table III for ChestX-ray14 alone, which lacks the classes of the last two sites."""

Masks = npt.NDArray[np.bool_]


def given(dataset: Dataset) -> bool:
    """Whether some labels are missing in the data as they came."""
    return dataset.y is not None and dataset.y.ndim == 2 and bool((dataset.y == UNKNOWN).any())


def to_learn(dataset: Dataset, labelling: LabelConfig) -> Dataset:
    """The dataset with those of its classes that are to be learned, in the order of the data."""
    wanted = [name for name in _words(labelling.classes, ",") if name != "all"]
    if not labelling.classes:
        wanted = [name for site in named(labelling.annotates) for name in site]
    for name in wanted:
        if name not in dataset.classes:
            raise unknown(f"class of {dataset.name}", name, [*dataset.classes, *TABLES])
    if not wanted:
        return dataset
    y, kept = label_matrix_of(dataset), [c for c, name in enumerate(dataset.classes) if name in wanted]
    classes = tuple(dataset.classes[c] for c in kept)
    test_y = None if dataset.test_y is None else dataset.test_y[:, kept]
    return replace(dataset, y=y[:, kept], test_y=test_y, classes=classes)


def label_matrix_of(dataset: Dataset) -> Tensor:
    """The truth of every class of every row, as far as it is known."""
    if dataset.y is None or dataset.y.ndim == 1:
        raise DataError(
            f"{dataset.name}: missing labels need rows that may have several classes, y as a matrix [n, classes] of 1 "
            "(present), 0 (absent) and -1 (not annotated)"
        )
    return dataset.y


def annotate(
    dataset: Dataset, labelling: LabelConfig, sites: Sequence[Tensor], generator: np.random.Generator
) -> tuple[Annotated, dict[str, Any]]:
    """What the site of every row knows of it, and how that came about."""
    truth = y = label_matrix_of(dataset)
    how = labelling.annotates or ("given" if given(dataset) else "drawn")
    if how != "given":
        y = torch.full_like(truth, UNKNOWN)
        for rows, mask in zip(sites, masks(how, labelling.annotated, dataset, len(sites), generator), strict=True):
            y[rows] = torch.where(torch.from_numpy(mask), truth[rows], UNKNOWN)
    return Annotated(y, len(dataset.classes)), {"labels": "annotated", "annotates": how}


def masks(how: str, share: float, dataset: Dataset, sites: int, generator: np.random.Generator) -> Masks:
    """Which site annotates which class, [sites, classes]."""
    classes = dataset.classes
    if how == "drawn":
        if not 0 < share <= 1:
            raise UsageError(f"annotated is the share of the classes that a site annotates, above 0; given: {share}")
        # Every class is annotated somewhere, even if sites must annotate more than their share for it.
        per_site = max(round(share * len(classes)), -(-len(classes) // sites), 1)
        return deal_classes(len(classes), sites, per_site, True, generator)
    chosen = named(how)
    if len(chosen) != sites:
        raise UsageError(
            f"annotates = {how!r} says what {len(chosen)} sites annotate, and there are {sites}; set sites, or put "
            "the sites' classes apart with semicolons"
        )
    return np.array([[name in site for name in classes] for site in chosen])


def named(annotates: str) -> list[list[str]]:
    """The classes that each site annotates; none where they are not named."""
    if annotates in ("", "given", "drawn"):
        return []
    sites = [_words(site, ",") for site in TABLES.get(annotates, annotates).split(";")]
    if not all(sites):
        raise UsageError(f"annotates = {annotates!r}: every site must annotate some class")
    return sites


def _words(text: str, separator: str) -> list[str]:
    return [word.strip() for word in text.split(separator) if word.strip()]
