"""Assume negative: binary cross-entropy in which a class that is not known to be present counts as absent.

Source: standard; there is no paper to depart from. FLAG and FedMLH train by it.

    symbol    where it lives                             does it travel
    Y         the classes known of an example: values    never
    p         sigmoid of the logits, one per class       never

Where only positives are known this is wrong for every class that an example has and nobody named, and where a site
holds one class only, it learns that all others are absent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from imperfed.core.batch import Batch
from imperfed.core.labels import Labels, Positive, Positives
from imperfed.core.objective import Objective


@dataclass(frozen=True)
class AssumeNegative(Objective):
    """The mean over all classes of the binary cross-entropy; those that are not named count as absent."""

    name: ClassVar[str] = "assume-negative"
    labels: ClassVar[type[Positives]] = Positives

    @classmethod
    def accepts(cls, kind: type[Labels]) -> bool:
        return kind in (Positive, Positives)

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        z = net(batch.x)
        Y = known_classes(batch.labels).to(z.dtype)
        return binary_cross_entropy_with_logits(z, Y, reduction="none").mean(-1), None


def known_classes(labels: Labels) -> Tensor:
    """Return which classes are known of every row, [n, C]: one of each row, or several."""
    return one_hot(labels.values, labels.classes) if isinstance(labels, Positive) else labels.values
