"""LW, the leveraged weighted loss (Wen et al., "Leveraged weighted loss for partial label learning", ICML 2021).

Source: checked against the authors' code. The authors train with SGD, momentum 0.9, batch 256, and on CIFAR-10 with
lr 0.05 (LWS) or 0.01 (LWC). The weights of the first visit are 1/C, later ones sum to 1 on each side, so the loss grows
by about C/|S| after the first visit.

    symbol    where it lives                   does it travel
    S         labels.values                    never
    w         rows["W"], one row per example   never; normalised over the candidates, it gives the inferred labels
    p         softmax of the logits            never

Departs from the paper in: no 1e-8 inside the logarithms, which are exact here; the sigmoid has no dead point at 0,
where the code returns 0.5 without a gradient; the second forward pass is made in evaluation mode, whereas the code
stays in training mode. `beta` is 1 as in the experiments (the code's own default is 0). The authors use both forms of
psi; the default is the one that learns at a learning rate of 0.01: LWS, whose slope is at most a quarter and vanishes
far from 0, does not on MNIST with LeNet-5, and is behind on every data set we tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from imperfed.core.batch import Batch, Tree
from imperfed.core.labels import Candidates
from imperfed.core.objective import Objective
from imperfed.nn.losses import log1m_softmax, masked_softmax


@dataclass(frozen=True)
class LW(Objective):
    """A binary loss inside the candidate set and one outside it, weighted by a second forward pass."""

    name: ClassVar[str] = "lw"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"beta": (1.0, 0.0, 2.0)}
    labels: ClassVar[type[Candidates]] = Candidates
    psi: Literal["sigmoid", "ce"] = "ce"  # psi: "ce" is LWC, "sigmoid" is LWS
    beta: float = 1.0  # beta, leverage of the non-candidates; the authors try 0, 1, 2

    def init_rows(self, labels: Candidates) -> Tree:
        return {"W": torch.full_like(labels.uniform(), 1 / labels.classes)}  # w_j = 1/C

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        S, w, z = batch.labels.values, batch.rows["W"], net(batch.x)
        if self.psi == "sigmoid":
            inside, outside = torch.sigmoid(-z), torch.sigmoid(z)  # psi(z_j), psi(-z_j) with psi(u) = 1/(1 + e^u)
        else:
            inside, outside = -log_softmax(z, -1), -log1m_softmax(z)  # -log p_j, -log(1 - p_j)
        candidates = (w * S * inside).sum(-1)  # sum_{j in S} w_j psi(z_j)
        others = (w * ~S * outside).sum(-1)  # sum_{j not in S} w_j psi(-z_j); 0 where S holds every class
        return candidates + self.beta * others, None

    def update_rows(self, net: Callable[[Tensor], Tensor], batch: Batch, out: Any) -> Tree:
        S, z = batch.labels.values, net(batch.x)
        return {"W": masked_softmax(z, S) + masked_softmax(z, ~S)}  # w_j = p_j / sum of p over the side of j

    def infer_labels(self, logits: Tensor, labels: Candidates, rows: Tree) -> Tensor:
        inside = rows["W"] * labels.values
        return inside / inside.sum(-1, keepdim=True)
