"""FastSlowMo (Yang et al., "FastSlowMo: federated learning with combined worker and aggregator momenta", TAI 2022).

Source: the abstract says that worker and aggregator both have momenta; the aggregator's step follows a third party's
code. The workers' sequence in the form "y" and all defaults are from memory, unverified.

    symbol     where it lives                   does it travel
    x          server["w"], down["w"]           down
    x_k        step.w                           up, its shared part
    v_k, y_k   opt_state["s"]                   down and up as "s", its shared part
    y_a        server["y_a"]                    never
    gamma      FastSlowMo.gamma                 never: a setting, as is gamma_a
    p_k        Updates.by_size, n_k / n         n_k is the site's claim

What a worker does after a broadcast can be read in two ways. In the form "velocity" (a third party's) it continues from
x with the mean velocity v. In the form "y" (the authors' variables) it continues with the mean sequence y, so that the
aggregator's jump from y to x enters its velocity; that needs smaller constants. Both have their own momentum, so
`local.momentum` is not used. Personal weights take the same steps, starting from rest in every round.

Departs from the paper in: the default form, since the other is less stable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult, LocalStep, ServerContext
from imperfed.core.errors import fraction
from imperfed.core.exchange import Exchange, Train, Updates
from imperfed.core.rates import descend


@dataclass(frozen=True)
class FastSlowMo(Algorithm):
    """Nesterov steps at the sites, as in FedNAG, and Nesterov momentum at the server as well."""

    name: ClassVar[str] = "fastslowmo"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"gamma_a": (0.5, 0.9, 0.2)}
    gamma: float = 0.5  # gamma, of the workers
    gamma_a: float = 0.5  # gamma_a, of the aggregator
    form: Literal["velocity", "y"] = "velocity"  # the sequence whose mean the workers continue with

    def __post_init__(self) -> None:
        fraction("method", gamma=self.gamma, gamma_a=self.gamma_a)

    @property
    def fixed_recipe(self) -> dict[str, str]:
        return {"optimizer": "its workers make Nesterov steps, whose sequence the aggregator averages"}

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {"y_a": w.clone(), "s": self.at_rest(w)}

    def at_rest(self, w: Tensor) -> Tensor:
        """Return the sequence of a worker that has not moved: v = 0, or y = x."""
        return torch.zeros_like(w) if self.form == "velocity" else w.clone()

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (Train(self.merge, send=self.send),)

    def send(self, server: Tree, site: int) -> Tree:
        """Return the mean sequence with which the workers continue."""
        return {"s": server["s"]}

    def init_optimizer(self, w: Tensor, down: Tree, memory: Tree) -> Tree:
        return {"s": torch.cat([down["s"], self.at_rest(w[len(down["s"]) :])])}

    def move(self, g: Tensor, step: LocalStep) -> None:
        x, s = step.w, step.opt_state["s"]
        if self.form == "velocity":
            v = descend(s.mul_(self.gamma), g, step.lr, out=s)  # v_k <- gamma v_k - eta g
            descend(x.add_(v, alpha=self.gamma), g, step.lr, out=x)  # x_k <- x_k + gamma v_k - eta g
        else:
            y = descend(x, g, step.lr)  # y_k' = x_k - eta g
            x.copy_(y).add_(y - s, alpha=self.gamma)  # x_k <- y_k' + gamma (y_k' - y_k)
            s.copy_(y)

    @property
    def sends_beside_weights(self) -> str:
        return "the sequence of its steps"

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        return {"s": done.opt_state["s"][: len(done.down["s"])]}, done.memory

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        p = updates.by_size()
        new = updates.average(p)
        y_a = new["w"]  # y_a' = sum_k p_k x_k: the mean of the workers' x, not of their y
        new["w"] = y_a + self.gamma_a * (y_a - server["y_a"])  # x <- y_a' + gamma_a (y_a' - y_a)
        return server | new | {"y_a": y_a, "s": updates.weighted_sum("s", p)}
