"""FedProx (Li et al., "Federated optimization in heterogeneous networks", MLSys 2020).

Source: the update rule is well known and from memory, unverified, as is the range of mu; no code was read for it.

    symbol    where it lives              does it travel
    w_t       server["w"], down["w"]      down
    w         step.w, shared part         up
    mu        FedProx.mu                  never: a setting
    p_k       FedProx.aggregation         n_k is the site's claim

The proximal term is mu/2 |w - w_t|^2, so its gradient is mu (w - w_t). It is added to the gradient after weight decay
and before the run's optimizer takes it in: `local.momentum` applies as under FedAvg, and with `local.optimizer=adam`
the term passes through Adam's moments. FedPSL's tables train it so, with `mu` 0.001. The first local step is FedAvg's,
since w = w_t there. Personal weights have no proximal term.

Departs from the paper in: sites are sampled uniformly and weighted by n_k, as most libraries do (the paper samples by
n_k and averages uniformly: `aggregation=uniform` is that mean); every site makes all its local steps, so there are no
stragglers whose partial work would be kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalStep, ServerContext
from imperfed.core.errors import not_negative
from imperfed.core.exchange import Updates


@dataclass(frozen=True)
class FedProx(Algorithm):
    """FedAvg with a proximal term that pulls local steps back to the weights received."""

    name: ClassVar[str] = "fedprox"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"mu": (0.01, 0.1, 1.0)}
    mu: float = 0.01  # mu; the paper tunes it over 0.001, 0.01, 0.1, 1
    aggregation: Literal["weighted", "uniform"] = "weighted"  # p_k: "weighted" n_k / n, or "uniform" 1/M

    def __post_init__(self) -> None:
        not_negative("method", mu=self.mu)

    def correct(self, g: Tensor, step: LocalStep) -> Tensor:
        w_t = step.down["w"]
        S = len(w_t)
        g[:S].add_(step.w[:S] - w_t, alpha=self.mu)  # g + mu (w - w_t)
        return g

    @property
    def needs_only_the_mean(self) -> bool:
        return self.aggregation == "weighted"

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        p = updates.by_size() if self.aggregation == "weighted" else updates.uniform()
        return server | updates.average(p)  # w_{t+1} = sum_k p_k w_k
