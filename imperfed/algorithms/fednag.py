"""FedNAG (Yang et al., "Federated learning with Nesterov accelerated gradient", IEEE TPDS 2022).

Source: that worker models and worker momenta are both aggregated is in the abstract; the update was checked against two
third parties' code, which average the buffers of torch's Nesterov SGD. The defaults are from memory, unverified.

    symbol    where it lives                   does it travel
    x         server["w"], down["w"]           down
    y         step.w                           up, its shared part
    v         server["v"], slots["v"]          down and up, its shared part
    gamma     FedNAG.gamma                     never: a setting
    p_k       Updates.by_size, n_k / n         n_k is the site's claim

The velocity form, v = -eta times torch's buffer: the two agree while eta is constant. The method has its own momentum,
so `local.momentum` is not used. Weights that stay at a site take the same steps, their velocity from 0 each round.

Departs from the paper in: nothing known. Sites may be absent from a round (the authors let all take part); the average
of the velocities is then over those that answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core import Algorithm, Done, Hall, Step, Tree, Updates
from imperfed.errors import UsageError


@dataclass(frozen=True)
class FedNAG(Algorithm):
    """Nesterov steps at the sites; the velocities are averaged with the models."""

    name: ClassVar[str] = "fednag"
    gamma: float = 0.9  # gamma; the paper sweeps 0.1 .. 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.gamma < 1:
            raise UsageError(f"setting method.gamma must be 0 or more and below 1; got {self.gamma:g}")

    def serve(self, w: Tensor, sites: int) -> Tree:
        return {"v": torch.zeros_like(w)}

    def send(self, server: Tree, site: int) -> Tree:
        return {"v": server["v"]}

    def start(self, w: Tensor, down: Tree, memory: Tree) -> Tree:
        return {"v": torch.cat([down["v"], torch.zeros_like(w[len(down["v"]) :])])}

    def move(self, g: Tensor, step: Step) -> None:
        v = step.slots["v"].mul_(self.gamma).sub_(g, alpha=step.lr)  # v <- gamma v - eta g(y)
        step.w.add_(v, alpha=self.gamma).sub_(g, alpha=step.lr)  # y <- y + gamma v - eta g(y), the same g, the new v

    def reply(self, done: Done) -> tuple[Tree, Tree]:
        return {"v": done.slots["v"][: len(done.down["v"])]}, done.memory

    def merge(self, server: Tree, updates: Updates, hall: Hall) -> Tree:
        p = updates.by_size()
        return server | updates.average(p) | {"v": p @ updates["v"]}  # x <- sum_k p_k y_k, v <- sum_k p_k v_k
