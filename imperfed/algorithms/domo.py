"""DOMO (Xu and Huang, "Coordinating momenta for cross-silo federated learning", AAAI 2022).

Source: the abstract and a public summary; fusion before the local steps follows a third party's code. Fusion at every
step and the defaults are from memory, unverified.

    symbol         where it lives                       does it travel
    x              server["w"]                          down; under fusion=start as x - b M
    y              step.w, shared part                  up
    M = eta H m    server["M"]                          down, under fusion=step; the server's momentum
    l              opt_state["v"], memory["l"]          never; mu_l is the run's `local.momentum`
    H, eta         local steps and learning rate        never: settings of the run
    p_k            Updates.by_size, n_k / n             n_k is the site's claim

The momentum m is stored as the displacement it causes in a round, M = eta H m, since only that is ever used; eta is
that of the round in which it will be used: with the same number of local steps at every site this is the paper's m up
to rounding. A site sends only y: with either fusion its own steps lead from x - b M to y, so eta sum_h l_h = x - b M -
y. With b = 0 nothing is fused, and server momentum and local momentum work side by side. Personal weights take momentum
steps, and nothing is fused into them.

Departs from the paper in: M is sent, not inferred by the sites from the models of two rounds, so that sites may be
absent; where sites make different numbers of steps, each counts with its whole displacement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult, LocalStep, ServerContext, SiteContext, SiteSetup
from imperfed.core.errors import fraction, not_negative, positive
from imperfed.core.exchange import Exchange, Train, Updates


@dataclass(frozen=True)
class DOMO(Algorithm):
    """Momentum at the server and at the sites; local training starts along the server's momentum."""

    name: ClassVar[str] = "domo"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"mu_s": (0.5, 0.9, 0.7)}
    mu_s: float = 0.9  # mu_s, the server's momentum
    alpha: float = 1.0  # alpha, the server's step size
    b: float = 0.9  # b, how much of the server's momentum is fused into local training
    fusion: Literal["start", "step"] = "start"  # when: at the "start" of a round (DOMO), or at every "step" (DOMO-S)
    keep: bool = False  # whether a site keeps its own momentum l from round to round

    def __post_init__(self) -> None:
        fraction("method", mu_s=self.mu_s)
        positive("method", alpha=self.alpha)
        not_negative("method", b=self.b)

    @property
    def fixed_recipe(self) -> dict[str, str]:
        return {"optimizer": "the local momentum l, which the server's is aligned with, is that of SGD"}

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {"M": torch.zeros_like(w)}

    def init_site(self, site: SiteSetup) -> Tree:
        return {"l": torch.zeros(site.layout.trainable)} if self.keep else {}

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (Train(self.merge, send=self.send),)

    def send(self, server: Tree, site: int) -> Tree:
        """Return M, or the model shifted by it, from which training starts."""
        if self.fusion == "step":
            return {"M": server["M"]}
        return {"w": server["w"] - self.b * server["M"]}  # y = x - eta b H m

    def prepare(self, site: SiteContext) -> Tree:
        return site.down | ({"bm": self.b * site.down["M"] / site.steps} if self.fusion == "step" else {})

    def init_optimizer(self, w: Tensor, down: Tree, memory: Tree) -> Tree:
        return {"v": memory["l"].clone() if self.keep else torch.zeros_like(w)}

    def move(self, g: Tensor, step: LocalStep) -> None:
        super().move(g, step)  # l <- mu_l l + g, y <- y - eta l
        if self.fusion == "step":
            bm = step.down["bm"]
            step.w[: len(bm)] -= bm  # ... - eta b m

    @property
    def sends_beside_weights(self) -> str:
        return ""

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        return {}, {"l": done.opt_state["v"].clone()} if self.keep else {}

    @property
    def needs_only_the_mean(self) -> bool:
        return True

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        x, M = server["w"], server["M"]
        new = updates.average(updates.by_size())
        M_new = self.mu_s * M + (x - self.b * M - new["w"])  # m <- mu_s m + sum_k p_k 1/H sum_h l_h
        new["w"] = x - self.alpha * M_new  # x <- x - alpha eta H m: from x, not from the sites' start
        return server | new | {"M": M_new * context.lr_change}
