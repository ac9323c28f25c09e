"""Squared error towards the one-hot label: with the model `linear` it is linear regression.

Source: standard; there is no paper to depart from.

    symbol    where it lives                   does it travel
    y         labels.values, as one-hot        never
    z         the network's outputs            never
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor
from torch.nn.functional import one_hot

from imperfed.core.batch import Batch
from imperfed.core.labels import Exact
from imperfed.core.objective import Objective


@dataclass(frozen=True)
class MSE(Objective):
    """Squared error that trusts every label; the class with the largest output is predicted."""

    name: ClassVar[str] = "mse"
    labels: ClassVar[type[Exact]] = Exact

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        z = net(batch.x)
        return (z - one_hot(batch.labels.values, z.shape[1])).square().mean(1), None  # mean over c of (z_c - y_c)^2
