"""Sign flip: an adversary sends the opposite of its update.

Source: a standard attack of the literature on Byzantine sites (for example Li et al., "RSA: Byzantine-robust stochastic
aggregation methods for distributed learning from heterogeneous datasets", AAAI 2019); definition and default are from
memory, unverified.

    symbol    where it lives                                    does it travel
    D_k       own: the adversary's update from honest training  never; what it sends instead does
    s         strength                                          never

Knowledge assumed: its own rows and the model, nothing about other sites.

Departs from the paper in: the attack is on the whole update of a round, not on one gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from imperfed.core.components import UpdateAttack
from imperfed.core.errors import positive


@dataclass(frozen=True)
class SignFlip(UpdateAttack):
    """Send the update with the opposite sign."""

    name: ClassVar[str] = "sign-flip"
    strength: float = 1.0  # s, how many times its length

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("attack", strength=self.strength)

    def falsify(self, own: Tensor, honest: Tensor) -> Tensor:
        return -self.strength * own  # -s D_k
