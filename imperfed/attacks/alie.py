"""ALIE (Baruch, Baruch, Goldberg, "A little is enough: circumventing defenses for distributed learning", NeurIPS 2019).

Source: definition from memory, unverified.

    symbol        where it lives                                       does it travel
    mu, sigma     mean and standard deviation of `honest`, by coordinate   never
    n, m          all sites that answer, the adversaries among them    never
    s             how many honest sites must side with the adversaries never
    z_max         `reach`, or z if it is set                           never

Knowledge assumed: the updates of all honest sites in the round (omniscient), and how many sites there are. The paper's
weaker adversary estimates mu and sigma from the updates of the sites it controls.

All adversaries send the same vector. sigma divides by the number of honest sites.

Departs from the paper in: nothing known.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

from torch import Tensor

from imperfed.core.components import UpdateAttack
from imperfed.core.errors import not_negative


@dataclass(frozen=True)
class ALIE(UpdateAttack):
    """Send the mean of all honest updates, shifted no further than many honest updates lie from it."""

    name: ClassVar[str] = "alie"
    z: float = 0.0  # z, the shift in standard deviations; 0: z_max from the number of sites

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative("attack", z=self.z)

    def falsify(self, own: Tensor, honest: Tensor) -> Tensor:
        mu, sigma = honest.mean(0), honest.std(0, correction=0)
        z = self.z or reach(len(own) + len(honest), len(own))
        return (mu - z * sigma).expand_as(own)  # mu - z sigma


def reach(n: int, m: int) -> float:
    """Return z_max, the largest shift that s honest sites are expected to exceed: Phi(z) < (n - m - s) / (n - m)."""
    s = n // 2 + 1 - m  # s = floor(n / 2 + 1) - m
    share = (n - m - s) / (n - m) if n > m else 1.0
    return NormalDist().inv_cdf(min(max(share, 0.5), 1 - 1e-6))  # never to the other side, never without end
