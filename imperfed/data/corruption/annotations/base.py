"""The base classes of annotation patterns: which classes each site annotates, and what the site therefore knows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from imperfed.data.generator import DataGenerator

UNKNOWN = -1
"""The entry of a label matrix for a class that was not annotated."""

Masks = npt.NDArray[np.bool_]
"""Which site annotates which class, [sites, classes]."""


@dataclass(frozen=True)
class AnnotationPattern(DataGenerator):
    """A way in which annotations are missing."""

    @property
    def title(self) -> str:
        """The name of the pattern in a run's record."""
        return self.name

    @abstractmethod
    def annotate(
        self, truth: Tensor, classes: tuple[str, ...], sites: Sequence[Tensor], generator: np.random.Generator
    ) -> tuple[Tensor, str]:
        """Return what each row's site knows about its classes, [rows, classes], and the title of the pattern used.

        `truth` must not be changed; `sites` holds the rows of each site.
        """

    def named_classes(self) -> tuple[str, ...]:
        """Return the classes that the pattern names; if it names any, no others are learned."""
        return ()


@dataclass(frozen=True)
class MaskedAnnotation(AnnotationPattern):
    """A pattern where each site knows the truth about some classes and nothing about the others."""

    def annotate(
        self, truth: Tensor, classes: tuple[str, ...], sites: Sequence[Tensor], generator: np.random.Generator
    ) -> tuple[Tensor, str]:
        known = torch.full_like(truth, UNKNOWN)
        for rows, mask in zip(sites, self.masks(classes, len(sites), generator), strict=True):
            known[rows] = torch.where(torch.from_numpy(mask), truth[rows], UNKNOWN)
        return known, self.title

    @abstractmethod
    def masks(self, classes: tuple[str, ...], sites: int, generator: np.random.Generator) -> Masks:
        """Return which site annotates which class."""


def some_missing(y: Tensor) -> bool:
    """Return whether some labels are already missing in the data."""
    return bool((y == UNKNOWN).any())
