"""Cross-entropy: the default objective where every example has one class.

Source: standard; there is no paper to depart from.

    symbol    where it lives          does it travel
    y         labels.values           never
    p         softmax of the logits   never
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor
from torch.nn.functional import cross_entropy

from imperfed.core.batch import Batch
from imperfed.core.labels import Exact, Labels, Positive
from imperfed.core.objective import Objective


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Cross-entropy that trusts every label."""

    name: ClassVar[str] = "cross-entropy"
    auto: ClassVar[Mapping[str, tuple[Any, ...]] | None] = {}
    labels: ClassVar[type[Exact]] = Exact
    reference: ClassVar[bool] = True

    @classmethod
    def accepts(cls, kind: type[Labels]) -> bool:
        return kind in (Exact, Positive)  # a class known to be present is taken as the only one

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        return cross_entropy(net(batch.x), batch.labels.values, reduction="none"), None  # -log p_y
