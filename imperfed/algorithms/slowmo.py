"""SlowMo (Wang et al., "SlowMo: improving communication-efficient distributed SGD with slow momentum", ICLR 2020).

Source: checked against code of the authors' organisation (torchdistx), whose defaults are used here. That the paper
tries beta from 0.4 to 0.8 is from memory, unverified.

    symbol    where it lives                   does it travel
    x         server["w"], down["w"]           down
    x_k       step.w, shared part              up
    u         server["u"]                      never
    v_k       opt_state["v"], memory["v"]      under buffer_strategy=average, as "v", down and up
    eta       ServerContext.lr, local step     never: a setting of the run, that of the round
    p_k       Updates.by_size, n_k / n         n_k is the site's claim

The base optimiser is that of the run; `buffer_strategy` says what happens between rounds to v_k, the velocity of SGD
with `local.momentum`. With constant eta, alpha = 1 and velocities reset, this is server momentum as in FedAvgM.
Personal weights take the same steps; averaged velocities are those of the shared weights, and those of personal weights
start at 0.

Departs from the paper in: velocities are reset by default, since sites of a federation may be absent for long (the
paper's own choice depends on the task).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult, ServerContext, SiteSetup
from imperfed.core.errors import fraction, positive
from imperfed.core.exchange import Exchange, Train, Updates

BufferStrategy = Literal["reset", "maintain", "average"]


@dataclass(frozen=True)
class SlowMo(Algorithm):
    """Local SGD with slow momentum over whole rounds at the server."""

    name: ClassVar[str] = "slowmo"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"beta": (0.5, 0.9, 0.7)}
    beta: float = 0.5  # beta, the slow momentum
    alpha: float = 1.0  # alpha, the slow learning rate
    buffer_strategy: BufferStrategy = "reset"  # v_k after a round: set to 0, kept at its site, or averaged over sites

    def __post_init__(self) -> None:
        fraction("method", beta=self.beta)
        positive("method", alpha=self.alpha)

    @property
    def fixed_recipe(self) -> dict[str, str]:
        carried = {"optimizer": f"buffer_strategy={self.buffer_strategy} carries over the velocity of SGD"}
        return {} if self.buffer_strategy == "reset" else carried

    def init_server(self, w: Tensor, sites: int) -> Tree:
        averaged = {"v": torch.zeros_like(w)} if self.buffer_strategy == "average" else {}
        return {"u": torch.zeros_like(w)} | averaged

    def init_site(self, site: SiteSetup) -> Tree:
        return {"v": torch.zeros(site.layout.trainable)} if self.buffer_strategy == "maintain" else {}

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (Train(self.merge, send=self.send),)

    def send(self, server: Tree, site: int) -> Tree:
        """Return the averaged velocity, where velocities are averaged."""
        return {"v": server["v"]} if self.buffer_strategy == "average" else {}

    def init_optimizer(self, w: Tensor, down: Tree, memory: Tree) -> Tree:
        v = torch.zeros_like(w)
        if self.buffer_strategy == "maintain":
            v.copy_(memory["v"])
        if self.buffer_strategy == "average":
            v[: len(down["v"])] = down["v"]
        return {"v": v}

    @property
    def sends_beside_weights(self) -> str:
        return "its momentum" if self.buffer_strategy == "average" else ""

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        v = done.opt_state["v"]
        up = {"v": v[: len(done.down["w"])]} if self.buffer_strategy == "average" else {}
        return up, {"v": v.clone()} if self.buffer_strategy == "maintain" else {}

    @property
    def needs_only_the_mean(self) -> bool:
        return True

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        p, eta = updates.by_size(), context.lr
        new = updates.average(p)
        u = self.beta * server["u"] + (server["w"] - new["w"]) / eta  # u <- beta u + (x - sum_k p_k x_k) / eta
        new["w"] = server["w"] - self.alpha * eta * u  # x <- x - alpha eta u
        averaged = {"v": updates.weighted_sum("v", p)} if self.buffer_strategy == "average" else {}
        return server | new | {"u": u} | averaged
