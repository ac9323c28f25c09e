"""Labelled rows that only the server holds: those marked in the data, or a share of all rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import Tensor

from imperfed.core.errors import DataError, UsageError
from imperfed.core.federation import Trusted
from imperfed.core.labels import Exact
from imperfed.data.dataset import Dataset

Index = npt.NDArray[np.int64]


def set_apart(dataset: Dataset, share: float, generator: np.random.Generator) -> tuple[Index, Index]:
    """Return the rows that only the server holds, and all others, both in order."""
    rows = np.arange(len(dataset))
    if dataset.trusted is not None:
        if share:
            raise UsageError(f"{dataset.name} marks the server's rows itself; leave split.trusted at 0")
        marked = dataset.trusted.numpy()
        return rows[marked], rows[~marked]
    if not share:
        return rows[:0], rows
    if dataset.y is None or dataset.y.ndim > 1:
        raise DataError(
            f"{dataset.name}: rows at the server are labelled with their true class, which is unknown; mark rows "
            "whose labels are right as `trusted` in the file"
        )
    return draw_rows(len(rows), share, generator)


def draw_rows(rows: int, share: float, generator: np.random.Generator) -> tuple[Index, Index]:
    """Draw a share of the rows, at least one and never all; return these and all others, both in order."""
    order = generator.permutation(rows)
    cut = min(max(1, round(share * rows)), rows - 1)
    return np.sort(order[:cut]), np.sort(order[cut:])


def trust(dataset: Dataset, rows: Tensor, x: Tensor) -> Trusted | None:
    """Return the server's own rows, with inputs x and their true classes or else the labels that come with the data."""
    labels = dataset.given if dataset.y is None else dataset.y
    if labels is None or not len(rows):
        return None
    return Trusted(x, Exact(labels[rows], len(dataset.classes)))
