"""FedNAG (Yang et al., "Federated learning with Nesterov accelerated gradient", IEEE TPDS 2022).

Source: that worker models and worker momenta are both aggregated is in the abstract; the update was checked against the
code of two third parties, which average the buffers of torch's Nesterov SGD. The defaults are from memory, unverified.

    symbol    where it lives                   does it travel
    x         server["w"], down["w"]           down
    y         step.w                           up, its shared part
    v         server["v"], opt_state["v"]      down and up, its shared part
    gamma     FedNAG.gamma                     never: a setting
    p_k       Updates.by_size, n_k / n         n_k is the site's claim
    p_0       FedNAG.public_weight             never: the weight of the server's own labelled rows

The update is in velocity form, v = -eta times torch's buffer: the two agree while eta is constant; under a schedule a
velocity keeps the size it had at the rates of its gradients. The method has its own momentum, so `local.momentum` is
not used. Personal weights take the same steps, with a velocity that starts at 0 in every round.

With `public_weight` above 0, labelled rows that the server holds (`split.trusted`) act as one more worker of that
weight; the sites share the rest. With weight 1 the server trains alone: the sites are not asked, and the model is
learned from the server's rows only. Neither is in the paper: methods that use such rows, such as pFedMo, have to be
measured against these two baselines.

Departs from the paper in: nothing known. Sites may be absent from a round (in the paper all take part); the velocities
are then averaged over the sites that answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult, LocalStep, ServerContext
from imperfed.core.errors import UsageError, fraction
from imperfed.core.exchange import Exchange, Query, Train, Updates
from imperfed.core.rates import descend


@dataclass(frozen=True)
class FedNAG(Algorithm):
    """Nesterov steps at the sites; the velocities are averaged with the models."""

    name: ClassVar[str] = "fednag"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"gamma": (0.5, 0.9, 0.7)}
    gamma: float = 0.9  # gamma; the paper sweeps 0.1 .. 0.9
    public_weight: float = 0.0  # p_0, the weight of the server's own rows as one more worker; 1: those rows alone

    def __post_init__(self) -> None:
        fraction("method", gamma=self.gamma)
        if not 0 <= self.public_weight <= 1:
            raise UsageError(f"setting method.public_weight must lie in 0 .. 1; got {self.public_weight:g}")

    @property
    def needs_server_rows(self) -> bool:
        return self.public_weight > 0

    @property
    def fixed_recipe(self) -> dict[str, str]:
        return {"optimizer": "its sites make Nesterov steps, whose velocities the server averages"}

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {"v": torch.zeros_like(w)}

    def send(self, server: Tree, site: int) -> Tree:
        """Return the mean velocity, with which the sites continue."""
        return {"v": server["v"]}

    def init_optimizer(self, w: Tensor, down: Tree, memory: Tree) -> Tree:
        return {"v": torch.cat([down["v"], torch.zeros_like(w[len(down["v"]) :])])}

    def move(self, g: Tensor, step: LocalStep) -> None:
        w, v = step.w, step.opt_state["v"]
        descend(v.mul_(self.gamma), g, step.lr, out=v)  # v <- gamma v - eta g(y)
        descend(w.add_(v, alpha=self.gamma), g, step.lr, out=w)  # y <- y + gamma v - eta g(y): the same g, the new v

    @property
    def sends_beside_weights(self) -> str:
        return "its momentum"

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        return {"v": done.opt_state["v"][: len(done.down["v"])]}, done.memory

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        if self.public_weight == 1:  # the sites contribute nothing
            return (Query("public", self.train_alone, respond=lambda site: {}),)
        return (Train(self.merge, send=self.send),)

    def train_alone(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Replace the model by that of the server's own worker."""
        return server | self.serves(server, context)

    def serves(self, server: Tree, context: ServerContext) -> Tree:
        """Return the model and velocity of the server's own worker after its local steps."""
        done = context.train(server)
        S, row = len(server["v"]), done.net.row
        return {"w": row[:S].clone(), "buffers": done.net.layout.buffers(row).clone(), "v": done.opt_state["v"][:S]}

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        p = updates.by_size()
        new = updates.average(p, "v")  # x <- sum_k p_k y_k, v <- sum_k p_k v_k
        if self.public_weight:
            own = self.serves(server, context)
            # x <- (1 - p_0) sum_k p_k y_k + p_0 y_0, and v likewise
            new = {name: torch.lerp(t, own[name], self.public_weight) for name, t in new.items()}
        return server | new
