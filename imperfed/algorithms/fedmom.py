"""FedMom (Huo et al., "Faster on-device training using new federated momentum algorithm", 2020).

Source: the abstract, and a third party's aggregator for the update and its initial value. That the paper's server step
undoes its weights n_k over *all* sites is from memory, unverified; here the weights of the sites that answered sum to
1, and alpha is 1.

    symbol    where it lives              does it travel
    x         server["w"], down["w"]      down
    y_k       step.w, shared part         up
    v         server["v"]                 never
    p_k       Updates.by_size, n_k / n    n_k is the site's claim

Nesterov acceleration at the server; the sites train as under FedAvg, with the run's `local.momentum`. Normalisation
buffers are averaged and not accelerated.

Departs from the paper in: nothing known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext
from imperfed.core.errors import fraction, positive
from imperfed.core.exchange import Updates


@dataclass(frozen=True)
class FedMom(Algorithm):
    """FedAvg whose server moves past the mean by Nesterov momentum."""

    name: ClassVar[str] = "fedmom"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"beta": (0.5, 0.9, 0.7)}
    beta: float = 0.9  # beta, the momentum
    alpha: float = 1.0  # alpha, the server's step size

    def __post_init__(self) -> None:
        fraction("method", beta=self.beta)
        positive("method", alpha=self.alpha)

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {"v": w.clone()}  # v_0 = x_0

    @property
    def needs_only_the_mean(self) -> bool:
        return True

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        new = updates.average(updates.by_size())
        v = torch.lerp(server["w"], new["w"], self.alpha)  # v_{t+1} = x_t - alpha sum_k p_k (x_t - y_k)
        new["w"] = v + self.beta * (v - server["v"])  # x_{t+1} = v_{t+1} + beta (v_{t+1} - v_t)
        return server | new | {"v": v}
