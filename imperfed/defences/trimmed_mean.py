"""Coordinate-wise trimmed mean (Yin et al., "Byzantine-robust distributed learning: towards optimal statistical rates",
ICML 2018).

Source: the definition is from memory.

    symbol    where it lives                        does it travel
    V         every answer of the sites, [n, ...]   up
    n         len(updates.who), sites that answered
    b         adversaries, declared: as many are cut off at either end

The rule applies to every named answer separately, including normalisation buffers. The sizes that sites claim are not
used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from imperfed.defences.robust import Everywhere


@dataclass(frozen=True)
class TrimmedMean(Everywhere):
    """Coordinate-wise mean of the sites' answers without the highest and lowest values."""

    name: ClassVar[str] = "trimmed-mean"

    def mix(self, V: Tensor) -> Tensor:
        return trimmed_mean(V, self.adversaries)


def trimmed_mean(V: Tensor, b: int) -> Tensor:
    """Return the mean over the first dimension without the b smallest and b largest values of each coordinate."""
    return V.double().sort(0).values[b : len(V) - b].mean(0).to(V.dtype)
