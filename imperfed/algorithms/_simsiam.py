"""SimSiam (Chen, He, "Exploring simple siamese representation learning", CVPR 2021), in rounds before the labels count.

Source: checked against the authors' code. That sites train it together, and all that follows from it, is our own.

    symbol    where it lives                                              does it travel
    h         features of a view: the network below its head              never
    z         projector(h): three layers, in the network as `projector`   never; its weights down and up
    p         predictor(z): two layers, in the network as `predictor`     never; its weights down and up
    sg        z is detached where it is a target                          never

    L = D(p1, sg z2) / 2 + D(p2, sg z1) / 2,  D(p, z) = -cos(p, z)

Batch normalisation in projector and predictor is over the real rows of a batch and keeps no running statistics, since
neither is used after training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Batch, Tree
from imperfed.core.context import LocalStep, ServerContext, SiteContext
from imperfed.core.errors import UsageError, not_negative
from imperfed.core.exchange import Query, Updates
from imperfed.core.network import Net, Network
from imperfed.core.objective import Objective
from imperfed.nn.views import NUMBERS, strong_view

EPS = 1e-5
"""What is added to a variance before it divides, as in torch."""
COLLAPSED = 0.1
"""The spread of projections below which the log warns; that of independent directions is 1."""


class Standardised(nn.Module):
    """A linear layer without bias whose outputs are standardised over the real rows of a batch."""

    def __init__(self, inputs: int, outputs: int, affine: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.scale = nn.Parameter(torch.ones(outputs)) if affine else None
        self.shift = nn.Parameter(torch.zeros(outputs)) if affine else None

    def forward(self, x: Tensor, share: Tensor) -> Tensor:
        x = self.linear(x)
        x = x - share @ x
        x = x * torch.rsqrt(share @ x.square() + EPS)
        return x if self.scale is None or self.shift is None else x * self.scale + self.shift


class Projector(nn.Module):
    """From the p features of a row to z: p, p, dim numbers."""

    def __init__(self, p: int, dim: int) -> None:
        super().__init__()
        self.first, self.second = Standardised(p, p), Standardised(p, p)
        self.third = Standardised(p, dim, affine=False)

    def forward(self, h: Tensor, share: Tensor) -> Tensor:
        h = self.first(h, share).relu()
        z: Tensor = self.third(self.second(h, share).relu(), share)
        return z


class Predictor(nn.Module):
    """From z to a guess of the other view's z: pred_dim, dim numbers."""

    def __init__(self, dim: int, pred_dim: int) -> None:
        super().__init__()
        self.first, self.second = Standardised(dim, pred_dim), nn.Linear(pred_dim, dim)

    def forward(self, z: Tensor, share: Tensor) -> Tensor:
        p: Tensor = self.second(self.first(z, share).relu())
        return p


@dataclass(frozen=True)
class Pretraining(Algorithm):
    """Rounds of SimSiam before the others; subclasses define both kinds of steps by `down["pretraining"]`."""

    pretrain: int = 10  # R1, rounds of pre-training
    dim: int = 0  # width of z; 0: as many as there are features (2048 in SimSiam)
    pred_dim: int = 0  # width inside the predictor; 0: a quarter of dim (512 in SimSiam)

    def check_pretraining(self) -> None:
        """Refuse invalid settings."""
        not_negative("method", pretrain=self.pretrain, dim=self.dim, pred_dim=self.pred_dim)
        if self.objective is not None and self.objective.changes_inputs:
            raise UsageError(f"{self.name} chooses the inputs itself, and so does {self.objective.name}; choose iml")

    def build(self, network: Network) -> Network:
        network = super().build(network)
        p = network.head.in_features
        dim = self.dim or p
        network.add_module("projector", Projector(p, dim))
        network.add_module("predictor", Predictor(dim, self.pred_dim or max(1, dim // 4)))
        return network

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return super().init_server(w, sites) | {"t": torch.zeros(())}

    def stage(self, server: Tree) -> Tree:
        """Return 1 in the rounds of pre-training, otherwise 0: what sites must know of the round."""
        return {"pretraining": (server["t"] < self.pretrain).to(server["w"].dtype)}

    def draws(self, steps: int, batch: int, generator: torch.Generator) -> Tree:
        views = torch.rand(steps, batch, 2 * NUMBERS, generator=generator)
        return super().draws(steps, batch, generator) | {"views": views}

    def looks(self, round: int) -> tuple[Query, ...]:
        """Return the question after the last round of pre-training whether the features have collapsed."""
        return (Query("spread", self.report_spread, respond=answer_spread),) if 0 < round == self.pretrain else ()

    def report_spread(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Note that pre-training has ended and how far apart projections lie."""
        found = float(updates.weighted_sum("spread", updates.by_size()))
        warning = ": they have collapsed, and pre-training does harm" if found < COLLAPSED else ""
        context.notes.append(f"{self.name}: pre-training ends; the spread of projections is {found:.2f}{warning}")
        return server

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        return super().merge(server, updates, context) | {"t": server["t"] + 1}


def staged_loss(objective: Objective, step: LocalStep, weight: float = 1.0) -> tuple[Tensor, Any]:
    """Return L of SimSiam and, times a weight, that of labels; L of labels is one of the head alone in pre-training."""
    net, batch, pretraining = step.net, step.batch, step.down["pretraining"]
    h1, h2 = (net.features(view) for view in views(batch, pretraining))
    L_SimSiam = batch.mean(simsiam(net, h1, h2, batch.share))
    logits = net.module.classify(torch.where(pretraining > 0, h1.detach(), h1))
    values, out = objective.loss(lambda x: logits, batch)
    return pretraining * L_SimSiam + weight * batch.mean(values), out


def views(batch: Batch, pretraining: Tensor) -> tuple[Tensor, Tensor]:
    """Return two views of the inputs in pre-training, and otherwise the inputs as they are, twice."""
    u, x = batch.draws["views"], batch.x
    first, second = (strong_view(x, part) for part in (u[:, :NUMBERS], u[:, NUMBERS:]))
    return torch.where(pretraining > 0, first, x), torch.where(pretraining > 0, second, x)


def simsiam(net: Net, h1: Tensor, h2: Tensor, share: Tensor) -> Tensor:
    """Return L of every row from the features of both views; `share`: 1 / (real rows) on them, otherwise 0."""
    projector, predictor = (net.module.get_submodule(name) for name in ("projector", "predictor"))
    z1, z2 = projector(h1, share), projector(h2, share)
    p1, p2 = predictor(z1, share), predictor(z2, share)
    return similarity_loss(p1, p2, z1, z2)


def similarity_loss(p1: Tensor, p2: Tensor, z1: Tensor, z2: Tensor) -> Tensor:
    """Return D(p1, sg z2) / 2 + D(p2, sg z1) / 2 of every row."""
    return -(cosine_similarity(p1, z2.detach(), dim=-1) + cosine_similarity(p2, z1.detach(), dim=-1)) / 2


@torch.no_grad()
def answer_spread(site: SiteContext) -> Tree:
    """Return the spread of the projections of all rows."""
    h = torch.cat([site.net.features(batch.x) for batch in site.slices()])
    z = site.net.module.get_submodule("projector")(h, torch.full_like(h[:, 0], 1 / len(h)))
    return {"spread": spread(z) * z.shape[1] ** 0.5}


def spread(z: Tensor) -> Tensor:
    """Return the mean over the numbers of z of their standard deviation over rows, each row of length 1."""
    return normalize(z).std(0, correction=0).mean()
