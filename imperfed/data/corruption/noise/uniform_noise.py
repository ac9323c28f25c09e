"""Uniform noise (FB-NLL, Eq. 1): some sites are noisy, each at its own rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from imperfed.data.corruption.noise.base import Mask, Noise
from imperfed.data.generator import Index, check_share


@dataclass(frozen=True)
class UniformNoise(Noise):
    """At noisy sites, labels are drawn again from all classes, including the true one."""

    name: ClassVar[str] = "uniform"
    noisy_sites: float = 0.6  # rho, the probability that a site is noisy
    noise_floor: float = 0.5  # tau, the lowest rate of a noisy site; the rate is drawn from U(tau, 1)

    def __post_init__(self) -> None:
        check_share("noise.noisy_sites", self.noisy_sites)
        check_share("noise.noise_floor", self.noise_floor)

    def corrupt(self, y: Index, classes: int, own: Mask | None, generator: np.random.Generator) -> Index:
        noisy, rate = generator.random() < self.noisy_sites, generator.uniform(self.noise_floor, 1)  # Eq. 1
        redrawn = generator.random(len(y)) < rate * noisy
        return np.where(redrawn, generator.integers(classes, size=len(y)), y)
