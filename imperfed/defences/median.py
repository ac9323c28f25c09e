"""Coordinate-wise median (Yin et al., "Byzantine-robust distributed learning: towards optimal statistical rates",
ICML 2018).

Source: the definition is from memory.

    symbol    where it lives                        does it travel
    V         every answer of the sites, [n, ...]   up
    n         len(updates.who), sites that answered
    f         adversaries, declared

The rule is taken of every answer by itself, normalisation buffers and further answers included. The sizes that sites
claim are not used.
"""

from __future__ import annotations

from torch import Tensor


def median(V: Tensor) -> Tensor:
    """The median over the first dimension; of an even number, the mean of the two middle values."""
    ordered, n = V.sort(0).values, len(V)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
