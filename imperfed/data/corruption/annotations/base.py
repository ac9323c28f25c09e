"""What an annotation pattern is: which classes each site annotates, and what that leaves a site to know."""

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
"""Stands in a label matrix where nobody has looked."""

Masks = npt.NDArray[np.bool_]
"""Which site annotates which class, [sites, classes]."""


@dataclass(frozen=True)
class AnnotationPattern(DataGenerator):
    """A way in which annotations are missing."""

    @property
    def title(self) -> str:
        """What the pattern is called in a run's record."""
        return self.name

    @abstractmethod
    def annotate(
        self, truth: Tensor, classes: tuple[str, ...], sites: Sequence[Tensor], generator: np.random.Generator
    ) -> tuple[Tensor, str]:
        """Return what the site of every row knows of it, [rows, classes], and the title of the pattern that did it.

        `truth` must not be changed; `sites` are the rows of each site.
        """

    def named_classes(self) -> tuple[str, ...]:
        """Return the classes that the pattern names; where it names some, no others are learned."""
        return ()


@dataclass(frozen=True)
class MaskedAnnotation(AnnotationPattern):
    """A pattern where each site knows the truth about some classes, and about the others nothing."""

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
    """Return whether some labels are missing in the data as they came."""
    return bool((y == UNKNOWN).any())
