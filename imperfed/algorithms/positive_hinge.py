"""The positive loss: one class of every row is known, and nothing says which classes are absent.

FedAwS (Yu et al., "Federated learning with only positive labels", ICML 2020) and FedALC (An et al., "Federated learning
with only positive labels by exploring label correlations"). Equation numbers: FedALC's.

Source: FedALC's paper; the threshold 0.9 of the loss is also in a public summary of FedAwS's. No code of the authors
was available.

    symbol     where it lives                           does it travel
    g(x)       representation, divided by its length    never
    w_y        row y of the network's head              with the model
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor
from torch.nn.functional import normalize

from imperfed.core.batch import Batch
from imperfed.core.labels import Positive
from imperfed.core.objective import Objective


@dataclass(frozen=True)
class PositiveHinge(Objective):
    """max(0, 0.9 - g(x).w_y)^2 on the one known class; nothing is assumed about the others."""

    name: ClassVar[str] = "positive-hinge"
    labels: ClassVar[type[Positive]] = Positive
    reads_network: ClassVar[bool] = True  # the class matrix
    threshold: float = 0.9  # Eq. 14

    def loss(self, net: Any, batch: Batch) -> tuple[Tensor, Any]:
        # Of the C scores of a row, only that of its own class is computed.
        w_y = net.module.head.weight.index_select(0, batch.labels.values)
        score = (normalize(net.features(batch.x)) * normalize(w_y)).sum(-1)
        return (self.threshold - score).clamp(min=0).square(), None  # Eq. 14
