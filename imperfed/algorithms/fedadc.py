"""FedADC (Ozfatura, Ozfatura and Gunduz, "FedADC: accelerated federated learning with drift control", ISIT 2021).

Source: the abstract, which says that momentum embedded in the local steps accelerates training and controls drift at no
extra cost. The equations and the defaults are from memory, unverified; no code was found.

    symbol        where it lives                   does it travel
    x             server["w"], down["w"]           down
    y             step.w, shared part              up
    M = eta m     server["M"]                      down
    eta m_bar     down["m_bar"], b_l M / H         never: computed by the site
    H             SiteContext.steps                never: a setting of the run
    p_k           Updates.by_size, n_k / n         n_k is the site's claim

The momentum m is stored as the displacement it causes, M = eta m, since only that is ever used; eta is that of the
round in which it will be used. With b_l = b_g it reaches the server through the sites' shifted steps alone; with b_l =
0 this is SlowMo with plain local steps. The method has its own momentum, so `local.momentum` is not used. Personal
weights take plain SGD steps.

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
from imperfed.core.context import LocalStep, ServerContext, SiteContext
from imperfed.core.errors import fraction, positive
from imperfed.core.exchange import Exchange, Train, Updates
from imperfed.core.objective import Objective
from imperfed.core.rates import descend


@dataclass(frozen=True)
class FedADC(Algorithm):
    """Server momentum embedded in the local steps, in equal parts."""

    name: ClassVar[str] = "fedadc"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"beta_global": (0.5, 0.9, 0.7)}
    beta_local: float = 0.9  # b_l, the share of the momentum that goes into the local steps of a round
    beta_global: float = 0.9  # b_g, the momentum
    alpha: float = 1.0  # alpha, the server's step size
    nesterov: bool = True  # gradient at the shifted point; false: at the point before the shift (heavy ball)

    def __post_init__(self) -> None:
        fraction("method", beta_local=self.beta_local, beta_global=self.beta_global)
        positive("method", alpha=self.alpha)

    @property
    def fixed_recipe(self) -> dict[str, str]:
        return {"optimizer": "a local step is plain SGD with a part of the server's momentum in it"}

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {"M": torch.zeros_like(w)}

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (Train(self.merge, send=self.send),)

    def send(self, server: Tree, site: int) -> Tree:
        """Return M, which the sites spread over their local steps."""
        return {"M": server["M"]}

    def prepare(self, site: SiteContext) -> Tree:
        return site.down | {"m_bar": self.beta_local * site.down["M"] / site.steps}  # m_bar = b_l m / H

    def shift(self, step: LocalStep) -> None:
        """Apply y <- y - eta m_bar."""
        m_bar = step.down["m_bar"]
        step.w[: len(m_bar)] -= m_bar

    def local_step(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        if self.nesterov:
            self.shift(step)
        return super().local_step(objective, step)

    def move(self, g: Tensor, step: LocalStep) -> None:
        descend(step.w, g, step.lr, out=step.w)  # y <- y - eta g(y)
        if not self.nesterov:
            self.shift(step)

    @property
    def needs_only_the_mean(self) -> bool:
        return True

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        x, M = server["w"], server["M"]
        new = updates.average(updates.by_size())
        # m <- sum_k p_k (x - y_k) / eta + (b_g - b_l) m
        new["M"] = x - new["w"] + (self.beta_global - self.beta_local) * M
        new["w"] = x - self.alpha * new["M"]  # x <- x - alpha eta m
        return server | new | {"M": new["M"] * context.lr_change}
