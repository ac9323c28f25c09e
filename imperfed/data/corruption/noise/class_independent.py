"""Class-independent noise (FB-NLL, Sec. II): rows of every class get one label of another task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from imperfed.data.corruption.noise.base import ForeignNoise, Mask
from imperfed.data.generator import Index


@dataclass(frozen=True)
class ClassIndependentNoise(ForeignNoise):
    """A share of a site's rows, whatever their class, all get one label of another task."""

    name: ClassVar[str] = "class-independent"

    def in_turn(self, y: Index, own: Mask, generator: np.random.Generator) -> Index:
        return generator.permutation(len(y))
