"""The default annotation pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from imperfed.data.corruption.annotations.base import some_missing
from imperfed.data.corruption.annotations.drawn import DrawnAnnotation
from imperfed.data.corruption.annotations.given_labels import GivenAnnotation


@dataclass(frozen=True)
class AutoAnnotation(DrawnAnnotation):
    """The annotations in the data, if some are missing there; otherwise each site annotates classes drawn for it."""

    name: ClassVar[str] = "auto"

    def annotate(
        self, truth: Tensor, classes: tuple[str, ...], sites: Sequence[Tensor], generator: np.random.Generator
    ) -> tuple[Tensor, str]:
        pattern = GivenAnnotation() if some_missing(truth) else DrawnAnnotation(self.annotated)
        return pattern.annotate(truth, classes, sites, generator)
