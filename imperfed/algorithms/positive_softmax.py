"""Softmax cross-entropy over the known positives: the default objective where only positives are known.

Source: standard; there is no paper to depart from. In the softmax all classes compete, so no negative label is needed.

    symbol    where it lives                         does it travel
    Y         known positives of an example: values  never
    p         softmax of the logits                  never
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor
from torch.nn.functional import log_softmax

from imperfed.core.batch import Batch
from imperfed.core.labels import Positives
from imperfed.core.objective import Objective
from imperfed.nn.losses import masked_mean


@dataclass(frozen=True)
class PositiveSoftmax(Objective):
    """The mean cross-entropy over an example's positives; 0 where it has none."""

    name: ClassVar[str] = "positive-softmax"
    auto: ClassVar[Mapping[str, tuple[Any, ...]] | None] = {}
    labels: ClassVar[type[Positives]] = Positives
    reference: ClassVar[bool] = True

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        logp = log_softmax(net(batch.x), -1)
        return masked_mean(-logp, batch.labels.values), None  # -1/|Y| sum_{j in Y} log p_j
