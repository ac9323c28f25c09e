"""FedAvg (McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017).

Source: well known and from memory; no code was read for it.

The defaults of `Algorithm` are FedAvg: this file only names them.

    symbol    where it lives              does it travel
    w         server["w"]                 down and up, whole
    n_k / n   Updates.by_size             n_k is the site's claim
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from imperfed.core.algorithm import Algorithm


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """Local steps, then the mean of the models, weighted by rows. The objective decides which labels it learns from."""

    name: ClassVar[str] = "fedavg"
    auto: ClassVar[Mapping[str, tuple[Any, ...]] | None] = {}
