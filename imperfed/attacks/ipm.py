"""IPM, inner product manipulation (Xie, Koyejo, Gupta, "Fall of empires: breaking Byzantine-tolerant SGD by inner
product manipulation", UAI 2019).

Source: definition from memory, unverified.

    symbol     where it lives                            does it travel
    V_i        honest: updates of the honest sites       up, from them
    epsilon    epsilon                                   never

Knowledge assumed: the updates of all honest sites in the round (omniscient). All adversaries send the same vector.

A small epsilon hides near 0, where Krum may choose it; a large one turns the mean of all answers around: with m of n
sites, from epsilon = (n - m) / m on.

Departs from the paper in: nothing known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from imperfed.core.components import UpdateAttack
from imperfed.core.errors import positive


@dataclass(frozen=True)
class IPM(UpdateAttack):
    """Send the mean of all honest updates with the opposite sign, shortened or lengthened."""

    name: ClassVar[str] = "ipm"
    epsilon: float = 0.5  # epsilon, the length in units of the honest mean

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("attack", epsilon=self.epsilon)

    def falsify(self, own: Tensor, honest: Tensor) -> Tensor:
        return (-self.epsilon * honest.mean(0)).expand_as(own)  # -epsilon / (n - m) sum_i V_i
