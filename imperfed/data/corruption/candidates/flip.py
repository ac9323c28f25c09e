"""Sets that every wrong class joins with the same probability (PRODEN with the edge rule `min2`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from imperfed.core.errors import unknown
from imperfed.data.corruption.candidates.base import ClassSets, Sets, with_truth
from imperfed.data.generator import Index, check_share

EDGES = ("raw", "min2", "nofull")


@dataclass(frozen=True)
class FlippedSets(ClassSets):
    """Every wrong class joins independently with one probability; then sets of one class or of all are changed."""

    name: ClassVar[str] = "flip"
    flip: float = 0.3  # q, the probability of every wrong class
    edge: str = "min2"  # raw (no change), min2 (at least two candidates), nofull (never all classes)

    def __post_init__(self) -> None:
        check_share("flip", self.flip)
        if self.edge not in EDGES:
            raise unknown("edge rule", self.edge, EDGES)

    def draw(self, y: Index, classes: int, generator: np.random.Generator) -> Sets:
        sets = with_truth(generator.random((len(y), classes)) < self.flip, y)
        wrong = (y + generator.integers(1, classes, len(y))) % classes
        if self.edge == "min2":
            alone = np.flatnonzero(sets.sum(1) == 1)
            sets[alone, wrong[alone]] = True
        elif self.edge == "nofull":
            full = np.flatnonzero(sets.all(1))
            sets[full, wrong[full]] = False
        return sets
