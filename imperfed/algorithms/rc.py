"""RC, the risk-consistent loss (Feng et al., "Provably consistent partial-label learning", NeurIPS 2020).

Source: loss and update were checked against the code of the LW authors (Wen et al., 2021), which the code of the CAVL
authors repeats; the authors' own repository was not available. With W from the same logits, RC's gradient is CC's: the
two differ only in the age of W.

    symbol    where it lives                   does it travel
    S         labels.values                    never
    W         rows["W"], one row per example   never; also the inferred labels
    p         softmax of the logits            never

Departs from the paper in: the factor 1/2 before the risk is left out, as in the code (the factor is from memory,
unverified); the second forward pass is made in evaluation mode, whereas the code stays in training mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from imperfed.core.batch import Batch, Tree
from imperfed.core.labels import Candidates
from imperfed.core.objective import Objective
from imperfed.nn.losses import masked_softmax, weighted_ce


@dataclass(frozen=True)
class RC(Objective):
    """Cross-entropy weighted by confidences that are updated by a second forward pass after the step."""

    name: ClassVar[str] = "rc"
    labels: ClassVar[type[Candidates]] = Candidates

    def init_rows(self, labels: Candidates) -> Tree:
        return {"W": labels.uniform()}  # W_j = 1/|S|

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        return weighted_ce(batch.rows["W"], net(batch.x)), None  # -sum_{j in S} W_j log p_j

    def update_rows(self, net: Callable[[Tensor], Tensor], batch: Batch, out: Any) -> Tree:
        return {"W": masked_softmax(net(batch.x), batch.labels.values)}  # W_j = p_j / sum_{l in S} p_l

    def infer_labels(self, logits: Tensor, labels: Candidates, rows: Tree) -> Tensor:
        return rows["W"]
