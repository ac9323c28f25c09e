"""CAVL (Zhang et al., "Exploiting class activation value for partial-label learning", ICLR 2022); also "Fed_CVAL".

Source: checked against the authors' code. The authors train with Adam, lr 0.001, batch 64. The activation value is
computed from raw logits, is not monotone in them and changes when a constant is added to all: the method is fragile.

    symbol    where it lives                   does it travel
    S         labels.values                    never
    W         rows["W"], one row per example   never; uniform on S at first, then the label picked last
    v         update_rows                      never
    p         softmax of the logits            never

Departs from the paper in: the label is picked among the candidates only, whereas the code takes the argmax of v Y and
thus picks a non-candidate when every candidate has v < 0 (`product=true` follows the code); the second forward pass is
made in evaluation mode, whereas the code stays in training mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from imperfed.core.batch import Batch, Tree
from imperfed.core.errors import UsageError
from imperfed.core.labels import Candidates
from imperfed.core.objective import Objective
from imperfed.nn.losses import masked_best, masked_softmax, weighted_ce


@dataclass(frozen=True)
class CAVL(Objective):
    """Cross-entropy on the candidate with the largest class activation value, picked by a second forward pass."""

    name: ClassVar[str] = "cavl"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"smoothing": (0.0, 0.1, 0.3)}
    labels: ClassVar[type[Candidates]] = Candidates
    product: bool = False  # pick by argmax(v Y), as the authors' code does
    smoothing: float = 0.0  # epsilon of the smoothed one-hot label; the authors try 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing <= 1:
            raise UsageError(f"setting objective.smoothing must lie between 0 and 1; got {self.smoothing:g}")

    def init_rows(self, labels: Candidates) -> Tree:
        return {"W": labels.uniform()}  # W_j = 1/|S|

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        return weighted_ce(batch.rows["W"], net(batch.x)), None  # -sum_j W_j log p_j

    def update_rows(self, net: Callable[[Tensor], Tensor], batch: Batch, out: Any) -> Tree:
        S, z = batch.labels.values, net(batch.x)
        v = z * (1 - z).abs()  # v_j = z_j |1 - z_j|
        best = masked_best(v * S, torch.ones_like(S)) if self.product else masked_best(v, S)  # argmax_{j in S} v_j
        return {"W": (1 - self.smoothing) * best + self.smoothing / z.shape[-1]}  # (1 - eps) onehot + eps / C

    def infer_labels(self, logits: Tensor, labels: Candidates, rows: Tree) -> Tensor:
        return masked_softmax(logits, labels.values)
