"""Binary cross-entropy over what is annotated: the reference objective where some labels are missing.

Source: standard; there is no paper to depart from. A class that is not annotated says nothing: it is not a negative.

    symbol    where it lives                                   does it travel
    A         annotated classes of an example: values >= 0     never
    y         present (1) or absent (0), inside A              never
    p         sigmoid of the logits, one a class               never
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from imperfed.core import Batch, Objective
from imperfed.labels import Annotated
from imperfed.losses import masked_mean


@dataclass(frozen=True)
class MaskedBCE(Objective):
    """Every annotated class is a yes-or-no question; the others are left out. 0 where nothing is annotated."""

    name: ClassVar[str] = "masked-bce"
    labels: ClassVar[type[Annotated]] = Annotated
    reference: ClassVar[bool] = True

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        values, z = batch.labels.values, net(batch.x)
        bce = binary_cross_entropy_with_logits(z, (values == 1).to(z.dtype), reduction="none")
        return masked_mean(bce, values >= 0), None  # mean over A of -y log p - (1 - y) log(1 - p)
