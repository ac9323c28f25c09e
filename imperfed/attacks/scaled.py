"""Scaled updates, or model replacement (Bagdasaryan et al., "How to backdoor federated learning", AISTATS 2020).

Source: definition from memory, unverified; the paper scales a backdoored model by n / eta, which survives the mean.

    symbol    where it lives                                    does it travel
    D_k       own: the adversary's update from honest training  never; what it sends instead does
    gamma     boost                                             never

Knowledge assumed: its own rows and the model, nothing about other sites.

Departs from the paper in: what is scaled is an honest update, without a backdoor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from imperfed.core.components import UpdateAttack
from imperfed.core.errors import positive


@dataclass(frozen=True)
class Scaled(UpdateAttack):
    """Send the update many times as long, so that it outweighs all others in a mean."""

    name: ClassVar[str] = "scaled"
    boost: float = 10.0  # gamma, the factor

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("attack", boost=self.boost)

    def falsify(self, own: Tensor, honest: Tensor) -> Tensor:
        return self.boost * own  # gamma D_k
