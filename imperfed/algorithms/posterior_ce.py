"""Posterior cross-entropy: every class counts by the probability that it is the true one.

Source: imperfed's own, with `repair=posterior`, which finds the probabilities Q; a label in doubt is then no longer
right or wrong, but counts in part.

    symbol    where it lives          does it travel
    Q         labels.values           never
    p         softmax of the logits   never

Departs from the paper in: nothing; it has no paper of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from imperfed.core.batch import Batch
from imperfed.core.labels import Probabilities
from imperfed.core.objective import Objective
from imperfed.nn.losses import weighted_ce


@dataclass(frozen=True)
class PosteriorCE(Objective):
    """Cross-entropy with the probabilities that a repair found in place of labels."""

    name: ClassVar[str] = "posterior-ce"
    labels: ClassVar[type[Probabilities]] = Probabilities
    reference: ClassVar[bool] = True

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        return weighted_ce(batch.labels.values, net(batch.x)), None  # -sum_y Q(y) log p_y
