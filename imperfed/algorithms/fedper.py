"""FedPer (Arivazhagan et al., "Federated learning with personalization layers", 2019): the last layer stays local.

Source: the split into shared base layers and personal layers is well known and from memory; no code was read for it.

    symbol    where it lives                  does it travel
    W_B       every weight below the head     down and up, merged by n_k / n
    W_P       head.weight, head.bias          never

Departs from the paper in: one personal layer, the head, where the paper also tries more; all sites begin with the same
personal weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from imperfed.core.algorithm import Algorithm


@dataclass(frozen=True)
class FedPer(Algorithm):
    """Averaging of everything but the last layer, which every site keeps for itself."""

    name: ClassVar[str] = "fedper"
    auto: ClassVar[Mapping[str, tuple[Any, ...]] | None] = {}

    def is_personal(self, name: str) -> bool:
        return name.startswith("head.")
