"""RHFL (Fang, Ye, "Robust federated learning with noisy and heterogeneous clients", CVPR 2022): sites agree on public
inputs and never average their weights.

Source: checked against the authors' code; that the text takes the absolute change of the loss is from memory.

    symbol       where it lives                                             does it travel
    theta_k      personal weights, all of them                              never
    x_0          server["public"], the public inputs                        down
    p_k          probabilities for x_0 under theta_k, server["P"][k]        up, then down to all sites
    l_k          mean of L_SL over the site's rows, server["loss"][k]       up
    W_k          server["W"]                                                down
    L_SL         `symmetric_ce`                                             never

    before training:  F_k = |l_k^(t-1) - l_k^t| / l_k^t;  v_k = 1/(K - 1) + eta F_k / sum F;  W = softmax(v)
    a local step:     one step on sum_{i != k} W_i KL(p_i | p_k) over some public inputs, then one on L_SL of a batch

Departs from the paper in: the p_i of a round are those before its first step, where the paper asks again for every
public batch, and the two kinds of steps alternate; both are made by the run's optimizer (the authors': Adam, with
a new state for every public batch); there is no pre-training; all sites have the same architecture; where no loss has
changed, or in the first round, all W_k are 1/(K - 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from imperfed.algorithms.cross_entropy import CROSS_ENTROPY, refuse_other_objectives
from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalStep, ServerContext, SiteContext
from imperfed.core.errors import UsageError, not_negative, positive
from imperfed.core.exchange import Exchange, Query, Train, Updates
from imperfed.core.objective import Objective

A = math.log(1e-4)
"""What stands for the logarithm of 0 in the reverse cross-entropy."""


@dataclass(frozen=True)
class RHFL(Algorithm):
    """For noisy labels: personal models that learn from each other's predictions for public inputs, noisy ones less."""

    name: ClassVar[str] = "rhfl"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"ce": (0.1, 0.5, 1.0)}
    objective: Objective | None = CROSS_ENTROPY
    ce: float = 0.1  # lambda, the weight of the cross-entropy beside the reverse one
    eta: float = 0.5  # eta, how far confidences differ
    public_batch: int = 64  # public inputs in a step

    def __post_init__(self) -> None:
        not_negative("method", ce=self.ce, eta=self.eta)
        positive("method", public_batch=self.public_batch)
        refuse_other_objectives(self.name, self.objective)

    @property
    def uses_public(self) -> bool:
        return True

    @property
    def fixed_recipe(self) -> dict[str, str]:
        return {"optimizer": "its two kinds of steps share one momentum"}

    def is_personal(self, name: str) -> bool:
        return True

    # -- the server -----------------------------------------------------------------------------------------------

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {name: torch.zeros(sites) for name in ("loss", "W", "known")}

    def opening(self) -> tuple[Query, ...]:
        return (Query("inputs", self.share_inputs, respond=lambda site: {}),)

    def share_inputs(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Take the public inputs into the server's memory, from which they are sent."""
        if not len(context.public):
            raise UsageError("rhfl lets sites agree on public inputs, but has none; set split.public, such as 0.2")
        sites, classes = len(server["W"]), len(context.classes)
        start = context.public.new_full((sites, len(context.public), classes), 1 / classes)
        return server | {"public": context.public.clone(), "P": start}

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        ask = Query("predictions", self.weigh, send=self.send_inputs, respond=self.predict)
        return ask, Train(self.merge, send=self.send_all)

    def send_inputs(self, server: Tree, site: int) -> Tree:
        """Return the public inputs."""
        return {"public": server["public"]}

    def weigh(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Remember p_k and l_k, and set W."""
        who = updates.index
        loss = server["loss"].index_copy(0, who, updates["loss"])
        old = torch.where(server["known"][who] > 0, server["loss"][who], updates["loss"])
        W = server["W"].index_copy(0, who, confidences(old, updates["loss"], self.eta))
        known = server["known"].index_fill(0, who, 1.0)
        return server | {"P": server["P"].index_copy(0, who, updates["p"]), "loss": loss, "W": W, "known": known}

    def send_all(self, server: Tree, site: int) -> Tree:
        """Return the public inputs, and what the other sites think of them: sum_i W_i p_i and sum_i W_i, without k."""
        W = server["W"] * server["known"]
        W = W.index_fill(0, torch.tensor([site], device=W.device), 0.0)
        return {"public": server["public"], "agreed": torch.tensordot(W, server["P"], 1), "weight": W.sum()}

    # -- a site ---------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def predict(self, site: SiteContext) -> Tree:
        """Return p_k for the public inputs, and l_k."""
        p = torch.cat([site.net(part).softmax(-1) for part in site.down["public"].split(1024)])
        losses = [self.symmetric_ce(site.net(batch.x), batch.labels.values) for batch in site.slices()]
        return {"p": p, "loss": torch.cat(losses).mean()}

    def draws(self, steps: int, batch: int, generator: torch.Generator) -> Tree:
        return {"from": torch.rand(steps, generator=generator)}

    def local_step(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        self.move(self.gradient(self.disagreement(step), step), step)
        return super().local_step(objective, step)

    def step_loss(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        z = step.net(step.batch.x)
        return step.batch.mean(self.symmetric_ce(z, step.batch.labels.values)), None

    def disagreement(self, step: LocalStep) -> Tensor:
        """Return sum_{i != k} W_i KL(p_i | p_k) over a window of the public inputs, up to what p_k does not change."""
        x = step.down["public"]
        first = (step.batch.draws["from"] * len(x)).long()
        at = (first + torch.arange(min(self.public_batch, len(x)), device=x.device)) % len(x)
        logp = log_softmax(step.net.in_passing(x[at]), -1)
        return -(step.down["agreed"][at] * logp).sum(-1).mean()

    def symmetric_ce(self, z: Tensor, y: Tensor) -> Tensor:
        """Return L_SL = lambda CE + RCE of every example, RCE = -A (1 - p_y)."""
        p = z.softmax(-1).clamp(1e-7, 1)
        reverse = -A * (p.sum(-1) - p.gather(1, y[:, None]).flatten())
        return self.ce * cross_entropy(z, y, reduction="none") + reverse


def confidences(before: Tensor, now: Tensor, eta: float) -> Tensor:
    """Return W of the sites that answered, from their losses in this round and the one before."""
    each = 1 / max(1, len(now) - 1)
    F = (before - now).abs() / now.clamp(min=1e-12)
    if F.sum() < 1e-12:
        return torch.full_like(now, each)
    return torch.softmax(each + eta * F / F.sum(), 0)
