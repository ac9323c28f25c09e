"""Sets that depend on the example (pFedPLL, Eq. 37; VALEN, Xu et al. 2021): classes that look alike join more often.

    symbol    where it lives
    f         softmax of the clean network's logits, divided by the temperature
    rho       rho
    u_j       chances: min(1, rho f_j / norm), norm by `normalise`

Departs from the pFedPLL paper in: `normalise = mean` instead of the printed `max`, which cannot give its own set sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from imperfed.core.errors import UsageError, unknown
from imperfed.core.labels import Candidates
from imperfed.data.corruption.candidates.base import CandidateGenerator, Floats, draw_each, true_classes
from imperfed.data.corruption.candidates.clean_network import clean_logits
from imperfed.data.dataset import Dataset
from imperfed.data.generator import Index, check_share

NORMALISE = ("mean", "mean-wrong", "max")
TEMPERATURES = (1e-2, 1e4)
"""The range that `calibrated` searches."""
ROUNDING = 1e-9
"""Tolerance on a mean size: with few classes every temperature may give the same one."""


@dataclass(frozen=True)
class InstanceSets(CandidateGenerator):
    """A wrong class joins more often the more probable it is to a network trained on the true classes."""

    name: ClassVar[str] = "instance"
    rho: float = 0.4  # the rate
    normalise: str = "mean"  # divide by the mean of all classes, of the wrong ones (mean-wrong), or by the max
    temperature: float = 1.0  # divides the clean network's logits
    mean_size: float = 0.0  # if positive, the temperature is chosen to give this expected size

    def __post_init__(self) -> None:
        check_share("rho", self.rho)
        if not self.temperature > 0:
            raise UsageError(f"temperature must be positive; got {self.temperature}")
        if self.normalise not in NORMALISE:
            raise unknown("normalisation", self.normalise, NORMALISE)
        if self.mean_size and self.temperature != 1:
            raise UsageError("mean_size sets the temperature; to choose the temperature yourself, set mean_size = 0")

    def generate(
        self, dataset: Dataset, data_seed: int, generator: np.random.Generator
    ) -> tuple[Candidates, dict[str, Any]]:
        y, classes = true_classes(dataset), len(dataset.classes)
        logits = clean_logits(dataset.x, torch.from_numpy(y), classes, data_seed)
        calibrated = self.calibrated(logits, y) if self.mean_size else self
        sets = draw_each(calibrated.chances(logits, y), y, generator)
        return Candidates(torch.from_numpy(sets), classes), {"temperature": calibrated.temperature}

    def chances(self, logits: Floats, y: Index) -> Floats:
        """Return u_j, the probability that a wrong class joins the set, from the clean network's logits."""
        z = logits / self.temperature
        z[np.arange(len(y)), y] = -np.inf
        # r = p / max p over the wrong classes; computed from logits, it is never 0/0, however certain the network is.
        r = np.exp(z - z.max(1, keepdims=True))
        if self.normalise == "mean":
            r /= r.mean(1, keepdims=True)
        elif self.normalise == "mean-wrong":
            r /= r.sum(1, keepdims=True) / (r.shape[1] - 1)
        u: Floats = np.minimum(r * self.rho, 1.0)
        return u

    def expected_size(self, logits: Floats, y: Index) -> float:
        """Return the expected mean size of the sets."""
        return 1.0 + float(self.chances(logits, y).sum(1, dtype=np.float64).mean())

    def calibrated(self, logits: Floats, y: Index) -> InstanceSets:
        """Return the generator at the temperature where the expected mean size is `mean_size`.

        It is found by bisection, because the size grows with the temperature.
        """

        def at(temperature: float) -> InstanceSets:
            return replace(self, temperature=temperature, mean_size=0.0)

        low, high = TEMPERATURES
        least, most = (at(end).expected_size(logits, y) for end in TEMPERATURES)
        if not least - ROUNDING <= self.mean_size <= most + ROUNDING:
            raise UsageError(
                f"mean_size = {self.mean_size} cannot be reached with rho = {self.rho} and normalise = "
                f"{self.normalise}: any temperature gives a mean size between {least:.3f} and {most:.3f}; change rho "
                "or mean_size"
            )
        middle = math.sqrt(low * high)
        while high / low > 1 + 1e-6:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if at(middle).expected_size(logits, y) < self.mean_size else (low, middle)
        return at(middle)
