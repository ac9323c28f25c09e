"""Binary cross-entropy over the annotated classes: the default objective where some labels are missing.

Source: standard; the weight of positives is FedPSL's (Sec. VII-D). A class that is not annotated is ignored: it is not
a negative.

    symbol          where it lives                                            does it travel
    A               annotated classes of an example: values >= 0              never
    y               present (1) or absent (0), inside A                       never
    p               sigmoid of the logits, one per class                      never
    N_neg, N_pos    counts over the site's own annotations; their ratio in    never
                    batch.site_stats["weight"], one number per class

A class of which a site has only positives, or only negatives, cannot be balanced there and has weight 1.

Departs from the usual form in: the mean is over A, then over examples, not over all annotations of a batch, since the
loss of an example must depend on that example alone. The two agree where all rows of a site have the same classes
annotated. Weights of positives are not clamped, however rare a class is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from imperfed.core.batch import Batch, Tree
from imperfed.core.labels import Annotated
from imperfed.core.objective import Objective
from imperfed.nn.losses import masked_mean


@dataclass(frozen=True)
class MaskedBCE(Objective):
    """Binary cross-entropy of every annotated class; the others are left out. 0 where nothing is annotated."""

    name: ClassVar[str] = "masked-bce"
    auto: ClassVar[Mapping[str, tuple[Any, ...]] | None] = {"balance": (True, False)}
    labels: ClassVar[type[Annotated]] = Annotated
    reference: ClassVar[bool] = True
    balance: bool = True  # positives have weight N_neg / N_pos of their class at their site; otherwise 1

    def site_stats(self, labels: Annotated) -> Tree:
        N_neg, N_pos = ((labels.values == y).sum(0).to(torch.get_default_dtype()) for y in (0, 1))
        ratio = torch.where((N_neg > 0) & (N_pos > 0), N_neg / N_pos.clamp(min=1), 1.0)
        return {"weight": ratio} if self.balance else {}

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        values, z = batch.labels.values, net(batch.x)
        weight = batch.site_stats["weight"] if self.balance else None
        y = (values == 1).to(z.dtype)
        bce = binary_cross_entropy_with_logits(z, y, pos_weight=weight, reduction="none")
        return masked_mean(bce, values >= 0), None  # mean over A of -N_neg/N_pos y log p - (1 - y) log(1 - p)

    def infer_labels(self, logits: Tensor, labels: Annotated, rows: Tree) -> Tensor:
        return torch.where(labels.values >= 0, (labels.values == 1).to(logits.dtype), labels.probabilities(logits))
