"""Coordinate-wise median (Yin et al., "Byzantine-robust distributed learning: towards optimal statistical rates",
ICML 2018).

Source: the definition is from memory.

    symbol    where it lives                        does it travel
    V         every answer of the sites, [n, ...]   up
    n         len(updates.who), sites that answered
    f         adversaries, declared

The rule applies to every named answer separately, including normalisation buffers. The sizes that sites claim are not
used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from imperfed.defences.robust import Everywhere


@dataclass(frozen=True)
class Median(Everywhere):
    """Coordinate-wise median of the sites' answers."""

    name: ClassVar[str] = "median"

    def mix(self, V: Tensor) -> Tensor:
        return median(V)


def median(V: Tensor) -> Tensor:
    """Return the median over the first dimension; for an even number, the mean of the two middle values."""
    ordered, n = V.sort(0).values, len(V)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
