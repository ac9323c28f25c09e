"""SCAFFOLD (Karimireddy et al., "SCAFFOLD: stochastic controlled averaging for federated learning", ICML 2020).

Source: the equations are from memory; what site and server do was compared with a third party's code (GHBM). The
defaults are from memory, unverified.

    symbol    where it lives                   does it travel
    x         server["w"], down["w"]           down
    y         step.w, shared part              up
    c         server["c"]                      down
    c_k       memory["c"], one per site        never; its change travels up as "dc"
    K         server["K"], all sites           never
    M         len(updates.who)                 never: the sites that answered
    H, eta    local steps and learning rate    never: settings of the run; eta is that of the round

Local steps are plain SGD: `local.momentum` is not used, since with momentum (x - y) / (H eta) would not be a mean of
gradients. Personal weights take plain SGD steps without a control variate. Normalisation buffers are the mean over the
M sites, without the server's step. Control variates of absent sites stay as they are.

Departs from the paper in: weight decay is part of the gradients of option II, and so of their control variates; option
I leaves it out of them, since what is the same at every site needs no correction. The full pass of option I is made in
training mode, in slices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult, LocalStep, ServerContext, SiteContext, SiteSetup
from imperfed.core.errors import positive
from imperfed.core.exchange import Exchange, Train, Updates
from imperfed.core.rates import descend


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """Local steps corrected by how the site's gradients differ from the mean of all sites."""

    name: ClassVar[str] = "scaffold"
    option: Literal[1, 2] = 2  # c_k^+: 1 the gradient at x over all rows, 2 the mean gradient of the steps just made
    alpha: float = 1.0  # alpha, the server's step size

    def __post_init__(self) -> None:
        positive("method", alpha=self.alpha)

    @property
    def fixed_recipe(self) -> dict[str, str]:
        unclipped = {"clip": "the gradients of option=1, which correct the steps, are not clipped"}
        return {"optimizer": "only after plain SGD steps is (x - y) / (H eta) a mean of gradients"} | (
            unclipped if self.option == 1 else {}
        )

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {"c": torch.zeros_like(w), "K": torch.tensor(float(sites))}

    def init_site(self, site: SiteSetup) -> Tree:
        return {"c": torch.zeros(site.layout.shared)}

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (Train(self.merge, send=self.send),)

    def send(self, server: Tree, site: int) -> Tree:
        """Return c, the server's control variate."""
        return {"c": server["c"]}

    def prepare(self, site: SiteContext) -> Tree:
        return site.down | {"full": site.full_gradient()} if self.option == 1 else site.down

    def correct(self, g: Tensor, step: LocalStep) -> Tensor:
        c, c_k = step.down["c"], step.memory["c"]
        g[: len(c)] += c - c_k  # g - c_k + c
        return g

    def move(self, g: Tensor, step: LocalStep) -> None:
        descend(step.w, g, step.lr, out=step.w)  # y <- y - eta (g - c_k + c)

    @property
    def sends_beside_weights(self) -> str:
        return "the change of its control variate"

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        x, c, c_k = done.down["w"], done.down["c"], done.memory["c"]
        mean = (x - done.net.w[: len(x)]) / (done.steps * done.lr)
        # c_k^+ = grad f_k(x) in option I, c_k - c + (x - y) / (H eta) in option II
        new = done.down["full"] if self.option == 1 else c_k - c + mean
        return {"dc": new - c_k}, {"c": new}

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        new = updates.average(updates.uniform())
        new["w"] = torch.lerp(server["w"], new["w"], self.alpha)  # x <- x + alpha 1/M sum_k (y_k - x)
        dc = updates.weighted_sum("dc", torch.ones_like(updates.n))  # sum_k (c_k^+ - c_k)
        new["c"] = server["c"] + dc / server["K"]  # c <- c + 1/K sum_k (c_k^+ - c_k)
        return server | new
