"""The annotations that came with the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from imperfed.data.corruption.annotations.base import AnnotationPattern


@dataclass(frozen=True)
class GivenAnnotation(AnnotationPattern):
    """What the data say: their own -1 is all that is missing."""

    name: ClassVar[str] = "given"

    def annotate(
        self, truth: Tensor, classes: tuple[str, ...], sites: Sequence[Tensor], generator: np.random.Generator
    ) -> tuple[Tensor, str]:
        return truth, self.title
