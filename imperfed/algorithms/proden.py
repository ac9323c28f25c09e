"""PRODEN (Lv et al., "Progressive identification of true labels for partial-label learning", ICML 2020).

Source: checked against the authors' code. The loss is RC's; the new confidences come from the forward pass of the step
itself, before the network moves. The authors train with SGD, momentum 0.9, batch 256 and, on most data, lr 0.01.

    symbol    where it lives                   does it travel
    S         labels.values                    never
    W         rows["W"], one row per example   never; also the inferred labels
    p         softmax of the logits            never

Departs from the paper in: the last batch of an epoch is used even if it is not full (the code drops it), and the
logarithm is taken by log-softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from imperfed.core.batch import Batch, Tree
from imperfed.core.labels import Candidates
from imperfed.core.objective import Objective
from imperfed.nn.losses import masked_softmax, weighted_ce


@dataclass(frozen=True)
class PRODEN(Objective):
    """Cross-entropy weighted by the confidences from the last forward pass over the example."""

    name: ClassVar[str] = "proden"
    auto: ClassVar[Mapping[str, tuple[Any, ...]] | None] = {}
    labels: ClassVar[type[Candidates]] = Candidates

    def init_rows(self, labels: Candidates) -> Tree:
        return {"W": labels.uniform()}  # W_j = 1/|S|

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        z = net(batch.x)
        return weighted_ce(batch.rows["W"], z), z.detach()  # -sum_{j in S} W_j log p_j

    def update_rows(self, net: Callable[[Tensor], Tensor], batch: Batch, out: Any) -> Tree:
        return {"W": masked_softmax(out, batch.labels.values)}  # W_j = p_j / sum_{l in S} p_l

    def infer_labels(self, logits: Tensor, labels: Candidates, rows: Tree) -> Tensor:
        return rows["W"]
