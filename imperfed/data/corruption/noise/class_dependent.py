"""Class-dependent noise (FB-NLL, Sec. II): rows get one label of another task, class by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from imperfed.data.corruption.noise.base import ForeignNoise, Mask
from imperfed.data.generator import Index


@dataclass(frozen=True)
class ClassDependentNoise(ForeignNoise):
    """A share of a site's rows, taken from one class of its task after the other, all get one label of another task."""

    name: ClassVar[str] = "class-dependent"

    def in_turn(self, y: Index, own: Mask, generator: np.random.Generator) -> Index:
        classes = generator.permutation(np.flatnonzero(own))
        return np.concatenate([generator.permutation(np.flatnonzero(y == c)) for c in classes])
