"""Mime and MimeLite (Karimireddy et al., "Mime: mimicking centralized stochastic algorithms in federated learning",
2020), with SGD and momentum as the centralised optimiser.

Source: checked against code of the authors' organisation (fedjax) and of two third parties (GHBM, FLSim). That beta =
0.9 is among the values the paper tries is from memory.

    symbol           where it lives                   does it travel
    x                server["w"], down["w"]           down
    y                step.w, shared part              up
    m                server["m"]                      down; frozen during a round
    c                server["c"]                      down, not under `lite`; the mean of the full gradients at x
    grad f_k(x)      Mime.answer_gradient             up as "g", in an exchange before training
    g(y), g(x)       of one batch in `local_step`     never
    U, V             Mime.mix                         never
    p_k              Updates.by_size, n_k / n         n_k is the site's claim

The method has its own momentum, so `local.momentum` is not used. Personal weights take plain SGD steps. Weight decay is
part of every gradient: those of a step, and the full ones from which c and m are computed. Both gradients of a step are
of the same rows, in training mode, with the same dropout; the pass at x leaves the normalisation buffers unchanged,
which are averaged by p_k without the server's step.

Departs from the paper in: momentum accumulates, as in fedjax, so that eta means the same as with the other momentum
methods here (`form=paper` is the paper's, which at equal eta moves 1 - beta times as far); the averages are weighted by
n_k, as in fedjax (the paper's are uniform); full gradients are taken in training mode, in slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalStep, ServerContext, SiteContext
from imperfed.core.errors import fraction, positive
from imperfed.core.exchange import Exchange, Query, Train, Updates
from imperfed.core.objective import Objective
from imperfed.core.rates import descend


@dataclass(frozen=True)
class Mime(Algorithm):
    """Local steps with the server's momentum, which is updated only by full gradients at the server's weights."""

    name: ClassVar[str] = "mime"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"beta": (0.5, 0.9, 0.0)}
    beta: float = 0.9  # beta, the momentum
    lite: bool = False  # MimeLite: no correction by g(x) and c
    form: Literal["accumulate", "paper"] = "accumulate"  # U and V: g + beta m, or (1 - beta) g + beta m
    alpha: float = 1.0  # alpha, the server's step size

    def __post_init__(self) -> None:
        fraction("method", beta=self.beta)
        positive("method", alpha=self.alpha)

    @property
    def fixed_recipe(self) -> dict[str, str]:
        unclipped = {"clip": "c is a mean of gradients that are not clipped; method.lite does without it"}
        return {"optimizer": "a local step applies the server's momentum, not an optimizer of the site's"} | (
            {} if self.lite else unclipped
        )

    def mix(self, g: Tensor, m: Tensor) -> Tensor:
        """Return U(g, m), the step, and V(g, m), the new momentum: with SGD and momentum they are the same."""
        return (1 - self.beta if self.form == "paper" else 1) * g + self.beta * m

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {"m": torch.zeros_like(w), "c": torch.zeros_like(w)}

    def send(self, server: Tree, site: int) -> Tree:
        """Return m, and the c that the query of this round has just set."""
        return {"m": server["m"]} if self.lite else {"m": server["m"], "c": server["c"]}

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return Query("gradient", self.collect, respond=self.answer_gradient), Train(self.merge, send=self.send)

    def answer_gradient(self, site: SiteContext) -> Tree:
        """Return grad f_k(x), with the weight decay that a step at x would have."""
        return {"g": site.full_gradient().add_(site.down["w"], alpha=site.weight_decay)}

    def collect(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Set c to the mean of the full gradients."""
        return server | {"c": updates.weighted_sum("g", updates.by_size())}  # c = sum_k p_k grad f_k(x)

    def local_step(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        S = len(step.down["w"])
        shift = 0.0 if self.lite else step.down["c"] - self.at_server(objective, step)
        loss, out = self.step_loss(objective, step)
        g = self.gradient(loss, step)
        g[:S] = self.mix(g[:S] + shift, step.down["m"])  # U(d, m) with d = g(y) - g(x) + c; MimeLite: d = g(y)
        descend(step.w, g, step.lr, out=step.w)  # y <- y - eta U
        return loss.detach(), out

    def at_server(self, objective: Objective, step: LocalStep) -> Tensor:
        """Return g(x), the gradient of the same batch at the server's weights, and restore the network."""
        x, y = step.down["w"], step.net.row.clone()
        step.w[: len(x)] = x
        # A step that draws numbers of its own is never captured, and during a capture a GPU's generator cannot be read.
        gpu = [x.device] if x.is_cuda and not torch.cuda.is_current_stream_capturing() else []
        with torch.random.fork_rng(devices=gpu):  # the pass at y will draw the same dropout
            g = self.gradient(self.step_loss(objective, step)[0], step)[: len(x)].clone()
        step.net.draw_again()
        step.net.load(y)
        return g

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        new = updates.average(updates.by_size())
        new["w"] = torch.lerp(server["w"], new["w"], self.alpha)  # x <- x - alpha sum_k p_k (x - y_k)
        return server | new | {"m": self.mix(server["c"], server["m"])}  # m <- V(c, m), gradients at the old x
