"""The annotations that come with the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from imperfed.data.corruption.annotations.base import AnnotationPattern


@dataclass(frozen=True)
class GivenAnnotation(AnnotationPattern):
    """The annotations in the data: only the labels marked -1 there are missing."""

    name: ClassVar[str] = "given"

    def annotate(
        self, truth: Tensor, classes: tuple[str, ...], sites: Sequence[Tensor], generator: np.random.Generator
    ) -> tuple[Tensor, str]:
        return truth, self.title
