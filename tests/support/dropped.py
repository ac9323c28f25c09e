"""A method nobody has heard of (Nobody, "Dropped in", 2025), for the test that drops it into a copy of the package.

symbol    where it lives          does it travel
p         softmax of the logits   never
m         server["m"]             never
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Batch, Tree
from imperfed.core.context import ServerContext
from imperfed.core.exchange import Updates
from imperfed.core.labels import Candidates
from imperfed.core.objective import Objective
from imperfed.nn.losses import masked_softmax


@dataclass(frozen=True)
class Dropped(Objective):
    """The probability that the prediction leaves the candidate set."""

    name: ClassVar[str] = "dropped"
    labels: ClassVar[type[Candidates]] = Candidates
    weight: float = 1.0  # lambda, Eq. 1

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        p = torch.softmax(net(batch.x), -1)
        return self.weight * (p * ~batch.labels.values).sum(-1), None  # Eq. 1

    def infer_labels(self, logits: Tensor, labels: Candidates, rows: Tree) -> Tensor:
        return masked_softmax(logits, labels.values)


@dataclass(frozen=True)
class DroppedMomentum(Algorithm):
    """The server moves on in the direction of earlier rounds."""

    name: ClassVar[str] = "dropped-momentum"
    objective: Objective | None = Dropped(weight=2.0)
    beta: float = 0.25  # beta, Eq. 2

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {"m": torch.zeros_like(w)}

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        mean = updates.average(updates.by_size())
        m = self.beta * server["m"] + mean["w"] - server["w"]  # Eq. 2
        return server | mean | {"m": m, "w": server["w"] + m}
