"""Every class annotated at every site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from imperfed.data.corruption.annotations.base import MaskedAnnotation, Masks


@dataclass(frozen=True)
class FullAnnotation(MaskedAnnotation):
    """Each site annotates all classes, as far as the data do: the upper bound for methods that fill gaps."""

    name: ClassVar[str] = "all"

    def masks(self, classes: tuple[str, ...], sites: int, generator: np.random.Generator) -> Masks:
        return np.ones((sites, len(classes)), dtype=bool)
