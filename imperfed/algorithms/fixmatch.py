"""FixMatch for missing labels (after Sohn et al., "FixMatch: simplifying semi-supervised learning with consistency and
confidence", NeurIPS 2020): what the model is sure of in a weak view is what it should find in a strong one.

Source: its use with missing labels was checked against third parties' code; positive and negative pseudo-labels are
those of a summary of Ihler et al. (CVPR workshops 2024). The original, for one class per row, is from memory,
unverified: tau = 0.95, lambda_u = 1, SGD with Nesterov momentum, 7 unlabelled rows to a labelled one.

    symbol      where it lives                                              does it travel
    a(x)        batch.x, with `local.augment` if it is set                  never
    A(x)        `strong_view`, from draws["fixmatch"]                       never
    p           sigmoid of the logits of a(x), without gradient             never
    m           1 in annotated cells: values >= 0                           never

    L = L_IML(a(x)) + lambda_u sum_ic (1 - m_ic) [p_ic >= tau or p_ic <= 1 - tau] BCE(A(x)_ic, [p_ic >= 1/2])
                      / sum_ic (1 - m_ic)

FedPSL's tables have it on all rows in one place, `pooled+fixmatch`, with the settings of FedMatch (`tau` 0.75,
`lambda_u` 0.01). Missing classes are mostly absent, and so are most pseudo-labels. Positives weigh N_neg / N_pos in
L_IML only: that makes p too large where a class is rare, and `balance=false` keeps it as it is.

Departs from the paper in: a decision for every cell in place of one for every row; the strong view (of images: moved,
relit, a square covered) is weaker than RandAugment, so that it cannot change what an X-ray shows; rows of numbers are
shaken and a quarter of their numbers is hidden. No moving average of the weights is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from imperfed.algorithms.iml import IML
from imperfed.core.batch import Batch, Tree
from imperfed.core.errors import UsageError, not_negative
from imperfed.nn.losses import mean_over_cells
from imperfed.nn.views import NUMBERS, strong_view


@dataclass(frozen=True)
class FixMatch(IML):
    """Annotated cells by IML; cells without annotation by what the model is sure of in a weak view of the row."""

    name: ClassVar[str] = "fixmatch"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"tau": (0.95, 0.75, 0.99)}
    changes_inputs: ClassVar[bool] = True
    tau: float = 0.95  # tau, how sure the model must be
    lambda_u: float = 1.0  # lambda_u, the weight of pseudo-labels
    rule: Literal["cells", "rows"] = "cells"  # "rows": only rows all of whose missing cells are sure, as a third party

    def __post_init__(self) -> None:
        not_negative("objective", lambda_u=self.lambda_u)
        if not 0.5 < self.tau <= 1:
            raise UsageError(f"setting objective.tau must lie above 0.5 and at most at 1; got {self.tau:g}")

    def draws(self, steps: int, batch: int, generator: torch.Generator) -> Tree:
        return {"fixmatch": torch.rand(steps, batch, NUMBERS, generator=generator)}

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        if not batch.draws:
            return super().loss(net, batch)
        weak, strong = net(torch.cat([batch.x, strong_view(batch.x, batch.draws["fixmatch"])])).chunk(2)
        return self.known(weak, batch) + self.lambda_u * self.unknown(weak.detach(), strong, batch), None

    def unknown(self, weak: Tensor, strong: Tensor, batch: Batch) -> Tensor:
        """Return the loss of pseudo-labels of every row, from the logits of both views."""
        p, missing = torch.sigmoid(weak), batch.labels.values < 0
        sure = (p >= self.tau) | (p <= 1 - self.tau)
        bce = binary_cross_entropy_with_logits(strong, (p >= 0.5).to(p.dtype), reduction="none")
        if self.rule == "rows":
            return mean_over_cells(bce, missing & (sure | ~missing).all(-1, keepdim=True), batch.real)
        return mean_over_cells(bce * sure, missing, batch.real)
