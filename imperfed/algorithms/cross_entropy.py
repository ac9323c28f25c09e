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
from imperfed.core.errors import UsageError
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


CROSS_ENTROPY = CrossEntropy()
"""What methods with a loss of their own over exact labels name as their objective."""


def refuse_other_objectives(method: str, objective: Objective | None) -> None:
    """Refuse an objective that a method, which replaces cross-entropy by a loss of its own, would not minimise."""
    if not isinstance(objective, CrossEntropy):
        raise UsageError(f"{method} has a loss of its own in place of cross-entropy and takes no other objective")
