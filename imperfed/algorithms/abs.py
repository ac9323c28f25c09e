"""ABS, average-based strategy with bounded losses (Lv et al., "On the robustness of average losses for partial-label
learning", TPAMI 2023).

Source: MAE and GCE were checked against a third party's benchmark (PLENCH); the authors' own code was not available.
That MSE is one of the paper's losses is from memory, unverified.

    symbol    where it lives          does it travel
    S         labels.values           never
    p         softmax of the logits   never
    q         ABSGCE.q                never: a setting

Departs from the paper in: nothing known. MAE is the sum over classes, 2 (1 - p_j); some implementations use half of it.
With 100 classes it learns very slowly from random weights.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from imperfed.core.batch import Batch, Tree
from imperfed.core.errors import UsageError
from imperfed.core.labels import Candidates
from imperfed.core.objective import Objective
from imperfed.nn.losses import masked_mean, masked_softmax


@dataclass(frozen=True)
class AverageBased(Objective):
    """The mean, over the candidates, of a loss that treats each as the label."""

    labels: ClassVar[type[Candidates]] = Candidates

    @abstractmethod
    def ell(self, logp: Tensor) -> Tensor:
        """Return the loss for each class treated as the label, [B, C]."""

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        logp = log_softmax(net(batch.x), -1)
        return masked_mean(self.ell(logp), batch.labels.values), None  # 1/|S| sum_{j in S} ell(p, j)

    def infer_labels(self, logits: Tensor, labels: Candidates, rows: Tree) -> Tensor:
        return masked_softmax(logits, labels.values)


@dataclass(frozen=True)
class ABSMAE(AverageBased):
    """Mean absolute error: bounded and symmetric."""

    name: ClassVar[str] = "abs-mae"

    def ell(self, logp: Tensor) -> Tensor:
        return -2 * torch.expm1(logp)  # sum_c |p_c - 1[c = j]| = 2 (1 - p_j)


@dataclass(frozen=True)
class ABSMSE(AverageBased):
    """Mean squared error: bounded."""

    name: ClassVar[str] = "abs-mse"

    def ell(self, logp: Tensor) -> Tensor:
        p = logp.exp()
        return 1 - 2 * p + (p * p).sum(-1, keepdim=True)  # sum_c (p_c - 1[c = j])^2


@dataclass(frozen=True)
class ABSGCE(AverageBased):
    """Generalised cross-entropy: between cross-entropy (q -> 0) and half of MAE (q = 1)."""

    name: ClassVar[str] = "abs-gce"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"q": (0.7, 0.3, 0.5)}
    q: float = 0.7  # q

    def __post_init__(self) -> None:
        if not 0 < self.q <= 1:
            raise UsageError(f"setting objective.q must be above 0 and at most 1; got {self.q:g}")

    def ell(self, logp: Tensor) -> Tensor:
        return -torch.expm1(self.q * logp) / self.q  # (1 - p_j^q) / q
