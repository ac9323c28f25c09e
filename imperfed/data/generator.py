"""The common base of partitions, noise, candidate sets and annotation patterns: a name, and parameters as fields."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from imperfed.core.errors import UsageError

Index = npt.NDArray[np.int64]
"""Row numbers, or one class per row."""


@dataclass(frozen=True)
class DataGenerator(ABC):
    """A step from dataset to federation. It holds parameters only; its methods are passed the random generator."""

    name: ClassVar[str]

    def __str__(self) -> str:
        """Return the name and the parameters that differ from their defaults."""
        values = ((spec, getattr(self, spec.name)) for spec in fields(self))
        return " ".join([self.name, *(f"{spec.name}={value}" for spec, value in values if value != spec.default)])


def check_share(setting: str, value: float) -> None:
    """Refuse a value that is no share or probability."""
    if not 0 <= value <= 1:
        raise UsageError(f"{setting} must lie in 0 .. 1; got {value}")
