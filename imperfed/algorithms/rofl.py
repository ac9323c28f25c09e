"""RoFL (Yang, Park, Byun, Kim, "Robust federated learning with noisy labels", IEEE Intelligent Systems 2022).

Source: checked against a public implementation that later papers name as the reference; its authorship is unverified.

    symbol      where it lives                                     does it travel
    w, t        server["w"], server["t"], the round                down; w also up
    f_G         server["f"], [C, d] class centroids                down
    f           opt_state["f"], the site's centroids               up as "f"
    h, z        features and logits of a batch                     never
    y^          prediction of the model received, where needed     never
    r_t         `forget`: the share of a batch that is left out    never

    L = CE(z, y') + lambda_cen mean(mask |h - f_y|^2) + lambda_e H, over the (1 - r_t) B rows of smallest cross-entropy;
    mask = [argmax_c cos(f_c, h) = y]; y' = y where the mask holds or t < T_pl, else y^

Departs from the paper in: the centroids begin as the class means of all sites' features under the labels as given,
asked for before round 0 (the implementation draws them at random and lets each site replace them by its own means in
its first round); the centroid term has a gradient (there the features are detached) and is a mean over the kept rows;
negative similarities count as 0 at the server. Every step also asks the model received, since steps do not know the
round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, log_softmax, one_hot

from imperfed.algorithms.cross_entropy import CROSS_ENTROPY, refuse_other_objectives
from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Batch, Tree
from imperfed.core.context import LocalResult, LocalStep, ServerContext, SiteContext
from imperfed.core.errors import fraction, not_negative, positive
from imperfed.core.exchange import Exchange, Query, Train, Updates
from imperfed.core.objective import Objective


@dataclass(frozen=True)
class RoFL(Algorithm):
    """For noisy labels: sites share class centroids, which confirm labels; rows of small loss train."""

    name: ClassVar[str] = "rofl"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"forget_rate": (0.2, 0.1, 0.4)}
    objective: Objective | None = CROSS_ENTROPY
    forget_rate: float = 0.2  # r, the share of every batch that is left out in the end
    forget_rounds: int = 10  # rounds over which r_t rises from 0 to r
    pseudo_from: int = 100  # T_pl, the first round with pseudo-labels; until then lambda_cen rises
    lambda_cen: float = 1.0  # lambda_cen, the final weight of the centroid term
    lambda_e: float = 0.8  # lambda_e, the weight of the entropy

    def __post_init__(self) -> None:
        fraction("method", forget_rate=self.forget_rate)
        positive("method", forget_rounds=self.forget_rounds, pseudo_from=self.pseudo_from)
        not_negative("method", lambda_cen=self.lambda_cen, lambda_e=self.lambda_e)
        refuse_other_objectives(self.name, self.objective)

    @property
    def leaves_out(self) -> float:
        return self.forget_rate

    @property
    def fixed_recipe(self) -> dict[str, str]:
        return {"optimizer": "the state of its steps holds class centroids beside the momentum of SGD"}

    # -- centroids before round 0 ---------------------------------------------------------------------------------

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {"t": torch.zeros(())}

    def opening(self) -> tuple[Query, ...]:
        return (Query("centroids", self.collect, respond=self.class_sums),)

    @torch.no_grad()
    def class_sums(self, site: SiteContext) -> Tree:
        """Return the number of rows of every class under the labels as given, and the sum of their features."""
        sums, counts = [], []
        for batch in site.slices():
            of = one_hot(batch.labels.values, batch.labels.classes).to(batch.x.dtype)
            sums.append(of.T @ site.net.features(batch.x))
            counts.append(of.sum(0))
        return {"sums": torch.stack(sums).sum(0), "counts": torch.stack(counts).sum(0)}

    def collect(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Set f_G to the class means over all sites."""
        sums, counts = (torch.stack([part[name] for part in updates.parts]).sum(0) for name in ("sums", "counts"))
        return server | {"f": sums / counts.clamp(min=1).unsqueeze(1)}

    # -- a site ---------------------------------------------------------------------------------------------------

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (Train(self.merge, send=self.send),)

    def send(self, server: Tree, site: int) -> Tree:
        """Return the centroids and the number of the round."""
        return {"f": server["f"], "t": server["t"]}

    def init_optimizer(self, w: Tensor, down: Tree, memory: Tree) -> Tree:
        return {"v": torch.zeros_like(w), "f": down["f"].clone()}

    def step_loss(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        batch, f, t = step.batch, step.opt_state["f"], step.down["t"]
        y = batch.labels.values
        h, z = step.net.with_features(batch.x)
        keep = self.keep(cross_entropy(z, y, reduction="none").detach(), batch, t)
        mask = cosine_similarity(h.detach().unsqueeze(1), f, dim=-1).argmax(-1) == y
        with torch.no_grad():
            guess = step.net.at(step.down["w"], step.down["buffers"], batch.x).argmax(-1)
        trusted = torch.where(mask | (t < self.pseudo_from), y, guess)
        logp = log_softmax(z, -1)
        loss = -logp.gather(1, trusted[:, None]).flatten()  # CE(z, y')
        near = mask * (h - f[y]).square().sum(-1)
        loss = loss + self.lambda_cen * (t / self.pseudo_from).clamp(max=1) * near  # + lambda_cen [mask] |h - f_y|^2
        loss = loss - self.lambda_e * (logp.exp() * logp).sum(-1)  # + lambda_e H
        f.copy_(gated(f, h.detach(), y, keep))
        return (loss * keep).sum() / keep.sum().clamp(min=1), None

    def keep(self, loss: Tensor, batch: Batch, t: Tensor) -> Tensor:
        """Return 1 for the (1 - r_t) B real rows of smallest loss, ties to the first, and 0 for all others."""
        order = torch.where(batch.real > 0, loss, torch.inf).argsort(stable=True)
        rank = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=order.device))
        most = torch.floor((1 - self.forget(t)) * batch.real.sum() + 1e-4).clamp(min=1)
        return batch.real * (rank < most)

    def forget(self, t: Tensor) -> Tensor:
        """Return r_t, which rises linearly from 0 to r over the first rounds."""
        return self.forget_rate * (t / max(1, self.forget_rounds - 1)).clamp(max=1)

    @property
    def sends_beside_weights(self) -> str:
        return "the centroids of its classes"

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        return {"f": done.opt_state["f"]}, done.memory

    # -- the server -----------------------------------------------------------------------------------------------

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        new = updates.average(updates.uniform())
        return server | new | {"f": merged_centroids(server["f"], updates["f"]), "t": server["t"] + 1}


def gated(f: Tensor, h: Tensor, y: Tensor, keep: Tensor) -> Tensor:
    """Return f_c <- (1 - s) f_c + s f^_c, s = cos(f_c, f^_c)^2, f^_c the mean feature of the kept rows of class c."""
    of = one_hot(y, len(f)).to(h.dtype) * keep.unsqueeze(1)  # [B, C]
    there = of.sum(0).unsqueeze(1)
    mean = of.T @ h / there.clamp(min=1)
    s = cosine_similarity(f, mean, dim=-1).square().unsqueeze(1)
    return torch.where(there > 0, (1 - s) * f + s * mean, f)


def merged_centroids(f_G: Tensor, f: Tensor) -> Tensor:
    """Return sum_k s_k f_k / sum_k s_k for every class, s_k = max(0, cos(f_G, f_k)); the plain mean if all are 0."""
    s = cosine_similarity(f_G, f, dim=-1).clamp(min=0).unsqueeze(-1)  # [K, C, 1]
    total = s.sum(0)
    return torch.where(total > 0, (s * f).sum(0) / total.clamp(min=1e-12), f.mean(0))
