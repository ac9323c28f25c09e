"""The base classes of label noise: rules by which a site's true classes become labels, some of them wrong.

Only the oracle knows which labels are wrong.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from imperfed.core.errors import UsageError
from imperfed.data.corruption.candidates.base import Floats
from imperfed.data.dataset import Dataset
from imperfed.data.generator import DataGenerator, Index, check_share

Mask = npt.NDArray[np.bool_]
"""Which classes belong to a site's own task, [classes]."""


@dataclass(frozen=True)
class Noise(DataGenerator):
    """A model of wrong labels."""

    @abstractmethod
    def corrupt(self, y: Index, classes: int, own: Mask | None, generator: np.random.Generator) -> Index:
        """Return the labels of one site's rows, given their true classes `y`, which must not be changed.

        `own`: the classes of the site's task; None if the sites have no tasks.
        """

    def opinions(self, dataset: Dataset, data_seed: int) -> Floats | None:
        """Return the probability of each class for every row of the data, if the noise depends on the inputs."""
        return None

    def corrupt_rows(
        self, y: Index, opinions: Floats | None, classes: int, own: Mask | None, generator: np.random.Generator
    ) -> Index:
        """Return what `corrupt` does, where the opinions about these rows are known."""
        return self.corrupt(y, classes, own, generator)


@dataclass(frozen=True)
class ForeignNoise(Noise):
    """Noise that gives some rows of a site the same label, one of another task (FB-NLL, Sec. II)."""

    noise_rate: float = 0.4  # share of a site's labels

    def __post_init__(self) -> None:
        check_share("noise.noise_rate", self.noise_rate)

    def corrupt(self, y: Index, classes: int, own: Mask | None, generator: np.random.Generator) -> Index:
        if own is None or own.all():
            raise UsageError(
                f"noise = {self.name} gives labels of another task, but this split has no tasks; set "
                "partition = tasks, or noise = uniform"
            )
        wrong = self.in_turn(y, own, generator)[: round(self.noise_rate * len(y))]
        labels = y.copy()
        labels[wrong] = generator.choice(np.flatnonzero(~own))
        return labels

    @abstractmethod
    def in_turn(self, y: Index, own: Mask, generator: np.random.Generator) -> Index:
        """Return the rows in the order in which they get the wrong label, until the share is reached."""
