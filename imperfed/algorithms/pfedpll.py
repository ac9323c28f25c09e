"""pFedPLL: personalised federated learning from candidate sets. Equation numbers: the conference version.

    symbol          where it lives                    does it travel
    w^rep           every weight below `corr`         down and up, merged by the KL score (Alg. 2)
    w^rel           corr, head                        never
    alpha           rows["alpha"], one per example    never; also the disambiguated labels
    M, N            labels.values and its complement  never
    a_1 .. a_B      ServerContext.public              never: unlabelled inputs of the server
    s^k             computed by the server itself     never

Departs from the paper in: the weights sent are those after the last local step (the paper's text says the last but one,
the thesis the last); the optimiser's momentum starts at zero in each round; where every distance is 0 or one is not
finite, the weights n_k / n are used, and the log says so.

Ablations: `lci=false`; `kl=false`; another `objective` instead of the triplet loss (the paper uses `lw`); any of
`lambda1`, `lambda2`, `lambda3` set to 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Batch, Tree
from imperfed.core.context import ServerContext, rows_at_once
from imperfed.core.exchange import Updates
from imperfed.core.labels import Candidates
from imperfed.core.network import Network
from imperfed.core.objective import Objective
from imperfed.nn.losses import NEVER, masked, masked_logsumexp, masked_softmax


@dataclass(frozen=True)
class LCP(Objective):
    """The triplet loss of pFedPLL (LCP): the set, what it was resolved to so far, and the classes outside it."""

    name: ClassVar[str] = "lcp"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"lambda3": (1.0, 0.3, 0.1)}
    auto: ClassVar[Mapping[str, tuple[Any, ...]] | None] = {}
    labels: ClassVar[type[Candidates]] = Candidates
    lambda1: float = 1.0  # Eq. 9, weight of L_s
    lambda2: float = 1.0  # Eq. 9, weight of L_pc
    lambda3: float = 1.0  # Eq. 9, weight of L_nc

    def init_rows(self, labels: Candidates) -> Tree:
        return {"alpha": labels.uniform()}  # Alg. 1, line 1

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        M = batch.labels.values
        logp = log_softmax(net(batch.x), -1)
        L_s = -masked_logsumexp(logp, M)  # Eq. 5
        L_pc = -(batch.rows["alpha"] * logp).sum(-1)  # Eq. 7
        worst = masked(logp, ~M).argmax(-1, keepdim=True)
        rest = torch.logsumexp(logp.scatter(-1, worst, NEVER), -1)  # log(1 - max over N), exact where that is near 0
        L_nc = -rest * (~M).any(-1)  # Eq. 8; 0 where every class is a candidate
        return self.lambda1 * L_s + self.lambda2 * L_pc + self.lambda3 * L_nc, logp.detach()  # Eq. 9

    def update_rows(self, net: Callable[[Tensor], Tensor], batch: Batch, out: Any) -> Tree:
        return {"alpha": masked_softmax(out, batch.labels.values)}  # Eq. 6

    def infer_labels(self, logits: Tensor, labels: Candidates, rows: Tree) -> Tensor:
        return rows["alpha"]


def identity(p: int) -> nn.Linear:
    """Return a p x p linear map without bias that starts as the identity."""
    layer = nn.Linear(p, p, bias=False)
    nn.init.eye_(layer.weight)
    return layer


@dataclass(frozen=True)
class PFedPLL(Algorithm):
    """For candidate sets: shared lower layers; each site keeps its own last layer and relations between labels."""

    name: ClassVar[str] = "pfedpll"
    auto: ClassVar[Mapping[str, tuple[Any, ...]] | None] = {}
    objective: Objective | None = LCP()
    lci: bool = True  # twin modules with the correlation layer, Sec. 3.2
    kl: bool = True  # Alg. 2; otherwise n_k / n
    batches: int = 8  # B of Alg. 2
    size: int = 256  # inputs in each a_b

    @property
    def uses_public(self) -> bool:
        return self.kl

    def build(self, network: Network) -> Network:
        return network.insert_before_head("corr", identity) if self.lci else network

    def is_personal(self, name: str) -> bool:
        return self.lci and name.startswith(("corr.", "head."))

    @property
    def needs_only_the_mean(self) -> bool:
        return not self.kl

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        weights = self.scores(server, updates, context) if self.kl else updates.by_size()
        return server | updates.average(weights)  # Alg. 1, line 18

    def scores(self, server: Tree, updates: Updates, context: ServerContext) -> Tensor:
        """Return the weights of Alg. 2: each site's share of the distances of representations from the global one."""
        if not len(context.public):
            context.notes.append("pfedpll: no public inputs for the KL score; the weights n_k/n are used")
            return updates.by_size()
        order = torch.randperm(len(context.public), generator=context.draw)[: self.batches * self.size]
        a = context.public[order]
        q = self.rep(context, server["w"], server["buffers"], a)
        models = zip(updates["w"], updates["buffers"], strict=True)
        # Eq. 10 and Alg. 2, line 4
        distance = torch.stack([kl(self.rep(context, w, b, a), q, self.size) for w, b in models])
        if not torch.isfinite(distance).all() or distance.sum() <= 0:
            context.notes.append("pfedpll: the KL distances are zero or not finite; the weights n_k/n are used")
            return updates.by_size()
        return distance / distance.sum()  # Alg. 2, line 5

    @torch.no_grad()
    def rep(self, context: ServerContext, w: Tensor, buffers: Tensor, x: Tensor) -> Tensor:
        """Return the log softmax over the p features of the representation at these weights, in few passes."""
        parts = x.split(rows_at_once(x, self.size))
        return torch.cat([log_softmax(context.net.at(w, buffers, part, features=True), -1) for part in parts])


def kl(logp: Tensor, logq: Tensor, size: int) -> Tensor:
    """Return KL(p || q), summed over features, mean over the examples of a_b, mean over b.

    That of each a_b is clamped, since rounding could make it negative.
    """
    each = (logp.exp() * (logp - logq)).sum(-1)
    return torch.stack([part.mean().clamp(min=0) for part in each.split(size)]).mean()
