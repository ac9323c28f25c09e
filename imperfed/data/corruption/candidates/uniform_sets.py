"""Sets that are all equally likely (Feng et al. 2020), or sizes distributed as in the public code of CAVL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from imperfed.core.errors import unknown
from imperfed.data.corruption.candidates.base import ClassSets, Sets, with_truth
from imperfed.data.generator import Index

LAWS = ("exact", "authors")


@dataclass(frozen=True)
class UniformSets(ClassSets):
    """Every set that contains the true class, but not all classes, is equally likely; or the size is drawn first."""

    name: ClassVar[str] = "uniform"
    uniform: str = "exact"  # exact: all sets are equally likely; authors: the size s has weight (C choose s)

    def __post_init__(self) -> None:
        if self.uniform not in LAWS:
            raise unknown("law of uniform candidate sets", self.uniform, LAWS)

    def draw(self, y: Index, classes: int, generator: np.random.Generator) -> Sets:
        return exact(y, classes, generator) if self.uniform == "exact" else authors(y, classes, generator)


def exact(y: Index, classes: int, generator: np.random.Generator) -> Sets:
    """Draw every class by a fair coin, and draw full sets again."""
    sets = with_truth(generator.random((len(y), classes)) < 0.5, y)
    while len(full := np.flatnonzero(sets.all(1))):
        sets[full] = with_truth(generator.random((len(full), classes)) < 0.5, y[full])
    return sets


def authors(y: Index, classes: int, generator: np.random.Generator) -> Sets:
    """Draw the size s of each set, then s - 1 wrong classes."""
    # Binomial(C, 1/2) without 0 and C has the weights (C choose s) / (2^C - 2), without computing 2^C.
    sizes = generator.binomial(classes, 0.5, len(y))
    while len(redo := np.flatnonzero((sizes == 0) | (sizes == classes))):
        sizes[redo] = generator.binomial(classes, 0.5, len(redo))
    keys = generator.random((len(y), classes))
    keys[np.arange(len(y)), y] = -1.0
    return keys <= np.take_along_axis(np.sort(keys, axis=1), sizes[:, None] - 1, axis=1)
