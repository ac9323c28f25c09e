"""The privacy cost of Gaussian noise, by dp-accounting.

Releases add up exactly: with noise of z_i times what the protected rows can change, releases chosen one after the other
are together as private as one with the noise 1 / sqrt(sum_i 1 / z_i^2) (Dong, Roth and Su, "Gaussian differential
privacy", JRSS B 2022, Cor. 3.3), and epsilon of one Gaussian release is known in closed form (Balle and Wang,
"Improving the Gaussian mechanism for differential privacy", ICML 2018, Thm. 8).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

from imperfed.core.errors import UsageError


def accounting() -> Any:
    """Return the package that computes the privacy cost; refuse to run without it."""
    try:
        import dp_accounting
    except ImportError:
        raise UsageError(
            "noise needs dp-accounting, which computes how private the result is; install imperfed[dp]"
        ) from None
    return dp_accounting


@cache
def spent(noise: float, delta: float, releases: int = 1) -> float:
    """Return epsilon after this many releases with this noise multiplier.

    Whoever is protected is in every release, so there is no amplification by sampling.
    """
    return spent_on([noise] * releases, delta)


def spent_on(noises: Iterable[float], delta: float) -> float:
    """Return epsilon after releases with these noise multipliers."""
    precision = math.fsum(1 / noise**2 for noise in noises)
    if not precision:
        return 0.0
    return float(accounting().get_epsilon_gaussian(1 / math.sqrt(precision), delta))
