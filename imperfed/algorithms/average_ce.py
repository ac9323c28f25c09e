"""Average cross-entropy: the naive loss on candidate sets, and the default objective for them.

Source: the standard baseline. It is the loss of RC with equal confidences, which was checked against the code of the LW
authors (Wen et al., 2021). It is unbounded, and on large sets it pulls the candidates towards equal probabilities.

    symbol    where it lives          does it travel
    S         labels.values           never
    p         softmax of the logits   never

Departs from the paper in: nothing; it has no paper of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor
from torch.nn.functional import log_softmax

from imperfed.core.batch import Batch, Tree
from imperfed.core.labels import Candidates
from imperfed.core.objective import Objective
from imperfed.nn.losses import masked_mean, masked_softmax


@dataclass(frozen=True)
class AverageCE(Objective):
    """The mean cross-entropy over the candidates, each treated as the label."""

    name: ClassVar[str] = "average-ce"
    auto: ClassVar[Mapping[str, tuple[Any, ...]] | None] = {}
    labels: ClassVar[type[Candidates]] = Candidates
    reference: ClassVar[bool] = True
    resolves: ClassVar[bool] = False

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        logp = log_softmax(net(batch.x), -1)
        return masked_mean(-logp, batch.labels.values), None  # -1/|S| sum_{j in S} log p_j

    def infer_labels(self, logits: Tensor, labels: Candidates, rows: Tree) -> Tensor:
        return masked_softmax(logits, labels.values)
