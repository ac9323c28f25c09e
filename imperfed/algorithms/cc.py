"""CC, the classifier-consistent loss (Feng et al., "Provably consistent partial-label learning", NeurIPS 2020).

Source: the formula was checked against the code of the LW authors (Wen et al., 2021), who took it from the authors of
CC; the authors' own repository was not available, and only the abstract of the paper was checked.

    symbol    where it lives          does it travel
    S         labels.values           never
    p         softmax of the logits   never

Departs from the paper in: nothing known. The sum is computed in log space, so that it never becomes log(0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from imperfed.core.batch import Batch, Tree
from imperfed.core.labels import Candidates
from imperfed.core.objective import Objective
from imperfed.nn.losses import masked_logsumexp, masked_softmax


@dataclass(frozen=True)
class CC(Objective):
    """Minus the log probability of the whole candidate set; a set of all classes gives no gradient."""

    name: ClassVar[str] = "cc"
    auto: ClassVar[Mapping[str, tuple[Any, ...]] | None] = {}
    labels: ClassVar[type[Candidates]] = Candidates

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        z = net(batch.x)
        return torch.logsumexp(z, -1) - masked_logsumexp(z, batch.labels.values), None  # -log sum_{j in S} p_j

    def infer_labels(self, logits: Tensor, labels: Candidates, rows: Tree) -> Tensor:
        return masked_softmax(logits, labels.values)
