"""No noise: the labels are the true classes, or those that come with the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from imperfed.data.corruption.noise.base import Mask, Noise
from imperfed.data.generator import Index


@dataclass(frozen=True)
class NoNoise(Noise):
    """Labels are left as they are."""

    name: ClassVar[str] = "none"

    def corrupt(self, y: Index, classes: int, own: Mask | None, generator: np.random.Generator) -> Index:
        return y
