"""Sets by a flipping matrix (LW): which wrong classes join depends on the true class. Class numbers are modulo C."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from imperfed.core.errors import UsageError, unknown
from imperfed.data.corruption.candidates.base import ClassSets, Floats, Sets, draw_each
from imperfed.data.generator import Index, check_share

MATRICES = ("pair", "neighbour", "band", "dense")


@dataclass(frozen=True)
class MatrixSets(ClassSets):
    """Class j joins the set of a row of class y with probability T[y, j], independently of other classes."""

    name: ClassVar[str] = "matrix"
    matrix: str = "band"  # pair, neighbour, band, dense
    matrix_q: float = 0.5  # q of pair and neighbour

    def __post_init__(self) -> None:
        if self.matrix not in MATRICES:
            raise unknown("flipping matrix", self.matrix, MATRICES)
        check_share("matrix_q", self.matrix_q)

    def draw(self, y: Index, classes: int, generator: np.random.Generator) -> Sets:
        return draw_each(self.flipping_matrix(classes)[y], y, generator)

    def flipping_matrix(self, classes: int) -> Floats:
        """Return T[y, j], the probability that class j joins the set of a row of class y; 1 on the diagonal."""
        chances = self.chances()
        if len(chances) >= classes:
            raise UsageError(
                f"the flipping matrix {self.matrix!r} needs more than {len(chances)} classes; the data have {classes}; "
                "use pair"
            )
        T = np.eye(classes)
        of = np.arange(classes)
        for offset, chance in chances.items():
            T[of, (of + offset) % classes] = chance
        return T

    def chances(self) -> Mapping[int, float]:
        """Return the probability of every class that may join, by its offset from the true one."""
        q = self.matrix_q
        return {
            "pair": {1: q},
            "neighbour": {-1: q, 1: q},
            "band": {-3: 0.1, -2: 0.3, -1: 0.5, 1: 0.5, 2: 0.3, 3: 0.1},
            "dense": {1: 0.2, 2: 0.8, 3: 0.8, 4: 0.8, 5: 0.4, 6: 0.4, 7: 0.2, 8: 0.2, 9: 0.2},
        }[self.matrix]
