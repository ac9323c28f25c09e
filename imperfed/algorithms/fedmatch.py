"""FedMatch (Jeong, Yoon, Yang, Hwang, "Federated semi-supervised learning with inter-client consistency and disjoint
learning", ICLR 2021), for missing labels as in the tables of FedPSL (Dong et al., IEEE TMI 2023).

Source: checked against the authors' code, whose defaults these are. The version for classes that are annotated or not,
cell by cell, is our own; that helpers are kept between refreshes is from memory of the paper, unverified (the code, and
`helpers=code`, hands them out in the round of a refresh only).

    symbol       where it lives                                          does it travel
    sigma        server["sigma"]; at a site w - psi                      down and up, in w
    psi          server["psi"]; opt_state["psi"]                         down and up as "psi"
    theta        step.w = sigma + psi                                    down and up as w
    psi_k        server["psis"], every site's last psi                   down, to the sites that k helps
    p, h_j       probabilities of this model and of sigma + psi_j        never
    A_k          server["tasks"], the classes that site k annotates      up once; down with its psi
    e_k          server["seen"], server["embedded"]: site k's outputs for one random input, found by the server

    labels, sigma only:    lambda_s L_IML(x)
    no labels, psi only:   lambda_L1 |psi|_1 + lambda_L2 |sigma - psi|^2 + mean of lambda_i mean_j KL(h_j | p)
                           + lambda_a BCE(strong view, vote) over cells without annotation: p >= tau or p <= 1 - tau

A vote is the majority of [p >= 1/2] and of the helpers' [h_j >= 1/2]; a helper j speaks about classes in A_j only, and
in a tie the model's own vote counts. The J helpers of a site are those of nearest e. Both steps are made for every
batch, as plain SGD with `local.lr`, which the factor lambda_s makes ten times as large for labels. The server takes
plain means; at the end psi is 0 where |psi| <= l1_thres, in what sites send and in the model that predicts.

Departs from the paper in: decisions cell by cell, see above; the gradient of |sigma - psi|^2 is taken at the new psi,
which is the same to first order and stable at any rate, where the plain step needs lr < 1 / lambda_L2; whole vectors
travel, where the paper leaves out small changes; scales of normalisation layers are split like other weights; the
strong view is `strong_view`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, hardshrink

from imperfed.algorithms.iml import IML, refuse_unannotated
from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult, LocalStep, ServerContext, SiteContext
from imperfed.core.errors import UsageError, not_negative, positive
from imperfed.core.exchange import Exchange, Query, Train, Updates
from imperfed.core.objective import Objective
from imperfed.core.rates import descend
from imperfed.nn.losses import mean_over_cells
from imperfed.nn.views import NUMBERS, strong_view

SHARE = 0.2
"""psi before round 0, in shares of sigma."""


@dataclass(frozen=True)
class FedMatch(Algorithm):
    """For missing labels: labelled and unlabelled cells train two parts of the weights; similar sites help."""

    name: ClassVar[str] = "fedmatch"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"lambda_L2": (10.0, 1.0, 0.0)}
    changes_inputs: ClassVar[bool] = True
    objective: Objective | None = field(default=IML())
    tau: float = 0.75  # tau, how sure the model must be of a cell
    J: int = 2  # J, helpers of a site
    h_interval: int = 10  # rounds between two choices of helpers
    helpers: Literal["keep", "code"] = "keep"  # until the next choice, or for one round only
    lambda_s: float = 10.0  # weight of labels
    lambda_i: float = 0.01  # weight of agreement with helpers
    lambda_a: float = 0.01  # weight of votes
    lambda_L1: float = 1e-4  # weight of |psi|_1
    lambda_L2: float = 10.0  # weight of |sigma - psi|^2
    l1_thres: float = 5e-6  # up to which an entry of psi counts as 0

    def __post_init__(self) -> None:
        refuse_unannotated(self.name, self.objective)
        positive("method", J=self.J, h_interval=self.h_interval)
        not_negative("method", lambda_s=self.lambda_s, lambda_i=self.lambda_i, lambda_a=self.lambda_a)
        not_negative("method", lambda_L1=self.lambda_L1, lambda_L2=self.lambda_L2, l1_thres=self.l1_thres)
        if not 0.5 < self.tau <= 1:
            raise UsageError(f"setting method.tau must lie above 0.5 and at most at 1; got {self.tau:g}")

    @property
    def fixed_recipe(self) -> dict[str, str]:
        plain = "its two steps are plain SGD, one for sigma and one for psi"
        return {"optimizer": plain, "clip": "it makes two steps per batch"}

    # -- the server, before and between rounds --------------------------------------------------------------------

    def init_server(self, w: Tensor, sites: int) -> Tree:
        psi = SHARE * w
        none = torch.full((sites, self.J), -1)
        return {"sigma": w.clone(), "psi": psi, "psis": psi.repeat(sites, 1), "seen": torch.zeros(sites), "near": none}

    def opening(self) -> tuple[Query, ...]:
        return (Query("tasks", self.collect, respond=annotated_classes),)

    def collect(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Remember A_k of every site."""
        own = torch.stack([part["tasks"] for part in updates.parts]).clamp(0, 1)
        tasks = own.new_zeros(len(server["seen"]), own.shape[1]).index_copy(0, updates.index, own)
        return server | {"tasks": tasks, "embedded": torch.zeros_like(tasks)}

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (Train(self.merge, send=self.send),)

    def send(self, server: Tree, site: int) -> Tree:
        """Return theta, psi and the site's helpers with their classes; a helper that is not there has none."""
        near = server["near"][site]
        there = (near >= 0).to(server["tasks"].dtype).unsqueeze(1)
        tasks = server["tasks"][near.clamp(min=0)] * there
        helpers = server["psis"][near.clamp(min=0)] * there
        return {"w": server["sigma"] + server["psi"], "psi": server["psi"], "helpers": helpers, "tasks": tasks}

    # -- a site ---------------------------------------------------------------------------------------------------

    def draws(self, steps: int, batch: int, generator: torch.Generator) -> Tree:
        return {"strong": torch.rand(steps, batch, NUMBERS, generator=generator)}

    def init_optimizer(self, w: Tensor, down: Tree, memory: Tree) -> Tree:
        return {"psi": down["psi"].clone()}

    def local_step(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        values, out = objective.loss(step.net, step.batch)
        L_s = step.batch.mean(values)
        descend(step.w, self.gradient(self.lambda_s * L_s, step), step.lr, out=step.w)  # sigma, and theta with it
        psi, new = step.opt_state["psi"], self.moved_psi(step)
        step.w[: len(psi)] += new - psi  # theta moves with psi; sigma stays
        psi.copy_(new)
        return L_s.detach(), out

    def moved_psi(self, step: LocalStep) -> Tensor:
        """Return psi after its step."""
        psi = step.opt_state["psi"]
        sigma = step.w[: len(psi)] - psi
        g = step.net.backward(self.unlabelled(step))[: len(psi)] + self.lambda_L1 * psi.sign()
        pull = 2 * step.lr * self.lambda_L2
        return (descend(psi, g, step.lr) + pull * sigma) / (1 + pull)  # 2 lambda_L2 (psi - sigma) at the new psi

    def unlabelled(self, step: LocalStep) -> Tensor:
        """Return lambda_i times the disagreement with helpers plus lambda_a times the loss of votes."""
        batch, down = step.batch, step.down
        weak, strong = step.net.in_passing(torch.cat([batch.x, strong_view(batch.x, batch.draws["strong"])])).chunk(2)
        with torch.no_grad():
            sigma = step.w[: len(down["psi"])] - step.opt_state["psi"]
            asked = [step.net.at(sigma + psi_j, down["buffers"], batch.x) for psi_j in down["helpers"]]
        helpers, p = torch.stack(asked), torch.sigmoid(weak.detach())
        sure = (batch.labels.values < 0) & ((p >= self.tau) | (p <= 1 - self.tau))
        agree = disagreement(helpers, weak, down["tasks"])
        voted = binary_cross_entropy_with_logits(strong, vote(weak, helpers, down["tasks"]), reduction="none")
        return batch.mean(mean_over_cells(self.lambda_i * agree + self.lambda_a * voted, sure, batch.real))

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        return {"psi": done.opt_state["psi"]}, done.memory

    # -- the server, after a round --------------------------------------------------------------------------------

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        p, who = updates.uniform(), updates.index
        sigmas, psis = updates["w"] - updates["psi"], hardshrink(updates["psi"], self.l1_thres)
        sigma, psi = p @ sigmas, p @ psis
        new = updates.average(p) | {"w": sigma + hardshrink(psi, self.l1_thres), "sigma": sigma, "psi": psi}
        seen = server["seen"].index_fill(0, who, 1.0)
        found = torch.stack([embedding(context, w, b) for w, b in zip(sigmas + psis, updates["buffers"], strict=True)])
        embedded = server["embedded"].index_copy(0, who, found)
        known = {"psis": server["psis"].index_copy(0, who, psis), "seen": seen, "embedded": embedded}
        if (context.round + 2) % self.h_interval == 0:  # the next round is one of a choice
            known["near"] = nearest(embedded, seen, self.J)
        elif self.helpers == "code":
            known["near"] = torch.full_like(server["near"], -1)
        return server | new | known


def annotated_classes(site: SiteContext) -> Tree:
    """Return A_k: 1 for every class that the site annotates anywhere."""
    return {"tasks": (site.labels.values >= 0).any(0).to(site.x.dtype)}


def disagreement(helpers: Tensor, z: Tensor, tasks: Tensor) -> Tensor:
    """Return mean_j KL(h_j | p) of every cell, from logits [J, n, C] and [n, C]; j: helpers that know its class."""
    h = torch.sigmoid(helpers)
    cross = binary_cross_entropy_with_logits(z.expand_as(h), h, reduction="none")
    own = binary_cross_entropy_with_logits(helpers, h, reduction="none")
    knows = tasks.unsqueeze(1)
    return ((cross - own) * knows).sum(0) / knows.sum(0).clamp(min=1)  # h log(h/p) + (1 - h) log((1 - h)/(1 - p))


def vote(z: Tensor, helpers: Tensor, tasks: Tensor) -> Tensor:
    """Return what the majority of the model and the helpers that know a class say: present (1) or absent (0)."""
    own, knows = (z.detach() >= 0).to(z.dtype), tasks.unsqueeze(1)
    present, voters = own + ((helpers >= 0) * knows).sum(0), 1 + knows.sum(0)
    return torch.where(2 * present == voters, own, (2 * present > voters).to(z.dtype))


@torch.no_grad()
def embedding(context: ServerContext, w: Tensor, buffers: Tensor) -> Tensor:
    """Return e_k: the probabilities that a site's model gives one random input, the same in every round and run."""
    shape = context.public.shape[1:]
    noise = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0)).to(w)
    if len(shape) == 3:  # an image: truncated to what pixels may be
        noise = (0.5 + 0.5 * noise).clamp(0, 1)
    return torch.sigmoid(context.net.at(w, buffers, noise)[0])


def nearest(embedded: Tensor, seen: Tensor, J: int) -> Tensor:
    """Return the J sites of nearest e for every site that has taken part, -1 for each that there is not."""
    far = torch.cdist(embedded, embedded, compute_mode="donot_use_mm_for_euclid_dist")
    unknown = (seen == 0).unsqueeze(0) | (seen == 0).unsqueeze(1) | torch.eye(len(seen), device=seen.device).bool()
    distance, order = far.masked_fill(unknown, torch.inf).sort(stable=True)
    near = torch.where(distance.isfinite(), order, -1)[:, :J]
    return torch.cat([near, near.new_full((len(near), max(0, J - near.shape[1])), -1)], 1)
