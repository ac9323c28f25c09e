"""Classes assigned to the sites at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from imperfed.core.errors import UsageError
from imperfed.data.corruption.annotations.base import MaskedAnnotation, Masks
from imperfed.data.partitions.classes import deal_classes


@dataclass(frozen=True)
class DrawnAnnotation(MaskedAnnotation):
    """Each site annotates a share of the classes, drawn so that every class is annotated somewhere."""

    name: ClassVar[str] = "drawn"
    annotated: float = 0.5  # share of the classes that a site annotates

    def __post_init__(self) -> None:
        if not 0 < self.annotated <= 1:
            raise UsageError(
                f"annotated, the share of the classes that a site annotates, must be above 0 and at most 1; "
                f"got {self.annotated}"
            )

    def masks(self, classes: tuple[str, ...], sites: int, generator: np.random.Generator) -> Masks:
        # Every class is annotated somewhere, even if sites must annotate more than their share.
        per_site = max(round(self.annotated * len(classes)), -(-len(classes) // sites), 1)
        return deal_classes(len(classes), sites, per_site, True, generator)
