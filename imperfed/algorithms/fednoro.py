"""FedNoRo (Wu, Yu, Jiang, Cheng, Yan, "FedNoRo: towards noise-robust federated learning by addressing class imbalance
and label noise heterogeneity", IJCAI 2023).

Source: checked against the authors' code.

    symbol      where it lives                                        does it travel
    w, t        server["w"], server["t"], the round                   down; w also up
    pi_k        memory["counts"], rows of every class at the site     up once as class counts
    m_kc        mean loss of a class, "losses" of a query             up once, after the warm-up
    M           server["noisy"], 1 for the sites held to be noisy     a site receives its own entry
    z_T         logits of the model received, the teacher             never
    d_k, a_k    `distances`, `weights_of`                             never

    stage 1, rounds 0 .. T1 - 1:  CE(z + log pi_k, y) everywhere; FedAvg
    stage 2: clean sites the same; noisy sites lambda_t KL(softmax(z_T / 0.8) | softmax(z + log pi_k)) + (1 - lambda_t)
    CE(z + log pi_k, y); merged by a_k ~ n_k exp(-d_k)

Departs from the paper in: the mixture of two Gaussians that finds M has diagonal covariances and a deterministic start,
where the authors vote over nine seeds of one with full covariances; classes absent from a site leave the divergence,
with the teacher renormalised over the others; a site that is not on duty when M is found counts as clean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from imperfed.algorithms._two_gaussians import higher_of_two
from imperfed.algorithms.cross_entropy import CROSS_ENTROPY, refuse_other_objectives
from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalStep, ServerContext, SiteContext, SiteSetup
from imperfed.core.errors import UsageError, fraction, positive
from imperfed.core.exchange import Exchange, Query, Train, Updates
from imperfed.core.network import Layout
from imperfed.core.objective import Objective
from imperfed.nn.losses import NEVER, masked_softmax


@dataclass(frozen=True)
class FedNoRo(Algorithm):
    """For noisy labels: find noisy sites by their losses, let them learn from the global model, count them less."""

    name: ClassVar[str] = "fednoro"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"lambda_max": (0.8, 0.4, 0.2)}
    objective: Objective | None = CROSS_ENTROPY
    warmup: int = 10  # T1, the rounds of stage 1
    ramp_until: int = 49  # the round at which lambda_t reaches lambda_max
    lambda_max: float = 0.8  # the largest weight of the teacher
    temperature: float = 0.8  # divides the teacher's logits

    def __post_init__(self) -> None:
        positive("method", warmup=self.warmup, temperature=self.temperature)
        fraction("method", lambda_max=self.lambda_max)
        refuse_other_objectives(self.name, self.objective)
        if self.ramp_until <= self.warmup:
            raise UsageError(f"method.ramp_until must come after method.warmup ({self.warmup}); got {self.ramp_until}")

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {"t": torch.zeros(()), "noisy": torch.zeros(sites)}

    def init_site(self, site: SiteSetup) -> Tree:
        counts = torch.zeros(site.labels.classes).index_add(0, site.labels.values, torch.ones(site.n))
        return {"counts": counts}

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        train = Train(self.merge, send=self.send)
        return (Query("losses", self.detect, respond=self.class_losses), train) if round == self.warmup else (train,)

    # -- who is noisy ---------------------------------------------------------------------------------------------

    @torch.no_grad()
    def class_losses(self, site: SiteContext) -> Tree:
        """Return m_kc, the mean cross-entropy of the site's rows of each class, without adjustment, and the counts."""
        counts = site.memory["counts"]
        total = torch.zeros_like(counts)
        for batch in site.slices():
            values = cross_entropy(site.net(batch.x), batch.labels.values, reduction="none")
            total.index_add_(0, batch.labels.values, values)
        return {"losses": total / counts.clamp(min=1), "counts": counts}

    def detect(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Set M to the sites in the mixture's component of larger losses."""
        who = updates.index.argsort()  # the order of answers must not matter
        found = higher_of_two(scaled(updates["losses"][who], updates["counts"][who] > 0))
        noisy = torch.zeros_like(server["noisy"]).index_copy(0, updates.index[who], found.to(server["noisy"]))
        names = ", ".join(context.sites[k] for k in noisy.nonzero().flatten().tolist() if context.sites)
        context.notes.append(f"fednoro holds these sites to be noisy: {names or 'none'}")
        return server | {"noisy": noisy}

    # -- a site ---------------------------------------------------------------------------------------------------

    def send(self, server: Tree, site: int) -> Tree:
        """Return the weight of the teacher at this site: lambda_t if it is noisy, 0 if not."""
        return {"teacher": server["noisy"][site] * self.teacher_weight(server["t"])}

    def teacher_weight(self, t: Tensor) -> Tensor:
        """Return lambda_t = 0.8 exp(-5 (1 - (t - T1) / (end - T1))^2), for t between T1 and the end."""
        share = ((t - self.warmup) / (self.ramp_until - self.warmup)).clamp(0, 1)
        return self.lambda_max * torch.exp(-5 * (1 - share).square())

    def step_loss(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        batch, counts, weight = step.batch, step.memory["counts"], step.down["teacher"]
        logp = log_softmax(adjusted(step.net(batch.x), counts), -1)
        with torch.no_grad():
            z_T = step.net.at(step.down["w"], step.down["buffers"], batch.x)
            q = masked_softmax(z_T / self.temperature, counts > 0)
        ce = -logp.gather(1, batch.labels.values[:, None]).flatten()
        kl = (q * (q.clamp(min=1e-30).log() - torch.where(counts > 0, logp, 0.0))).sum(-1)
        return batch.mean(weight * kl + (1 - weight) * ce), None  # lambda KL + (1 - lambda) CE

    # -- the server -----------------------------------------------------------------------------------------------

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        d = distances(updates, server["noisy"][updates.index] > 0, context.net.layout)
        return server | updates.average(weights_of(d, updates.n)) | {"t": server["t"] + 1}


def adjusted(z: Tensor, counts: Tensor) -> Tensor:
    """Return z + log pi_k, with which a class absent from the site has probability 0."""
    prior = counts / counts.sum()
    return z + torch.where(counts > 0, prior.clamp(min=1e-30).log(), NEVER)


def scaled(losses: Tensor, known: Tensor) -> Tensor:
    """Return the losses of every class brought to 0 .. 1 over the sites; a site that lacks it gets the smallest."""
    least = torch.where(known, losses, torch.inf).amin(0)
    least = torch.where(least.isfinite(), least, 0.0)
    filled = torch.where(known, losses, least)
    return (filled - least) / (filled.amax(0) - least).clamp(min=1e-12)


def distances(updates: Updates, noisy: Tensor, layout: Layout) -> Tensor:
    """Return d_k, the distance of a noisy site from the nearest clean one, over the largest; 0 for clean sites.

    A distance is the sum over tensors of the Frobenius norms of their differences.
    """
    d = torch.zeros_like(updates.n)
    clean = (~noisy).nonzero().flatten()
    for k in noisy.nonzero().flatten().tolist() if len(clean) else ():
        d[k] = sum(norms(t[clean] - t[k], parts) for t, parts in pieces(updates, layout)).amin()  # type: ignore
    return d / d.max().clamp(min=1e-12)


def pieces(updates: Updates, layout: Layout) -> list[tuple[Tensor, list[slice]]]:
    """Return the shared weights and the shared buffers, each with the places of its named tensors."""
    w = [slice(f.offset, f.end) for f in layout.fields.values() if f.end <= layout.shared]
    at = layout.trainable
    inside = [f for f in layout.fields.values() if at <= f.offset and f.end <= layout.shared_end]
    return [(updates["w"], w), (updates["buffers"], [slice(f.offset - at, f.end - at) for f in inside])]


def norms(rows: Tensor, parts: list[slice]) -> Tensor:
    """Return the sum of the norms of these parts, for every row."""
    return sum((torch.linalg.vector_norm(rows[:, part], dim=1) for part in parts), rows.new_zeros(len(rows)))


def weights_of(d: Tensor, n: Tensor) -> Tensor:
    """Return a_k, proportional to n_k exp(-d_k)."""
    a = n * torch.exp(-d)
    return a / a.sum()
