"""FedNed (Lu, Chen, et al., "Federated learning with extremely noisy clients via negative distillation", AAAI 2024).

Source: checked against the authors' code, whose distillation does not reach the merged weights; the negative target and
the rate of the steps are choices made here.

    symbol       where it lives                                               does it travel
    theta        server["w"]                                                  down and up
    Bad          server["bad"], 1 for sites that were ever flagged            a site receives its own entry
    U_k          `uncertainty` of theta_k on public inputs                    never
    lambda       excess / m, for m answers                                    never
    r            `negative_target` of a flagged model, for public inputs      never

    from round T0 on:  u_k = U_k / sum_j U_j; flag u_k > lambda; theta = mean of the others by n_k; then theta makes
                       steps of Adam on the mean over flagged models of KL(r | softmax(f_theta(x) / T)),
                       r_c ~ 1 - softmax(f_bad(x) / T)_c
    flagged sites:     in later rounds train on their own predictions, where these are surer than `confidence`

Departs from the paper in: the target r (the authors take the softmax of reciprocal logits, not normalised); a flagged
site sends one model, trained on pseudo-labels, where the authors also train one on its labels as another bad teacher;
lambda follows the number of answers (0.12 of 10 in the paper); networks without dropout are asked once. Where all are
flagged, theta stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax

from imperfed.algorithms.cross_entropy import CROSS_ENTROPY, refuse_other_objectives
from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalStep, ServerContext
from imperfed.core.errors import UsageError, fraction, not_negative, positive
from imperfed.core.exchange import Exchange, Train, Updates
from imperfed.core.network import Net
from imperfed.core.objective import Objective
from imperfed.nn.optimizers import Adam


@dataclass(frozen=True)
class FedNed(Algorithm):
    """For noisy labels: leave out sites whose models are unsure of public inputs, and move away from these models."""

    name: ClassVar[str] = "fedned"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"excess": (1.2, 1.1, 1.5)}
    objective: Objective | None = CROSS_ENTROPY
    warmup: int = 10  # T0, rounds of plain averaging
    excess: float = 1.2  # a site is flagged if its share of all uncertainty exceeds this many equal shares
    passes: int = 10  # forward passes with dropout
    inputs: int = 128  # public inputs on which models are compared
    steps: int = 100  # steps of negative distillation
    rate: float = 0.001  # their learning rate; the authors' 0.05 never took effect
    temperature: float = 2.0  # T
    confidence: float = 0.95  # how sure a flagged site's model must be of a pseudo-label

    def __post_init__(self) -> None:
        positive("method", excess=self.excess, passes=self.passes, inputs=self.inputs, temperature=self.temperature)
        not_negative("method", warmup=self.warmup, steps=self.steps, rate=self.rate)
        fraction("method", confidence=self.confidence)
        refuse_other_objectives(self.name, self.objective)

    @property
    def uses_public(self) -> bool:
        return True

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {"bad": torch.zeros(sites), "t": torch.zeros(())}

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (Train(self.merge, send=self.send),)

    def send(self, server: Tree, site: int) -> Tree:
        """Return whether the site was ever flagged."""
        return {"bad": server["bad"][site]}

    def step_loss(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        batch, bad = step.batch, step.down["bad"] > 0
        z = step.net(batch.x)
        sure, guess = (z.detach() / self.temperature).softmax(-1).max(-1)
        loss = cross_entropy(z, torch.where(bad, guess, batch.labels.values), reduction="none")
        return batch.mean(torch.where(bad & (sure < self.confidence), 0.0, loss)), None

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        if not len(context.public):
            raise UsageError("fedned compares models on public inputs, but has none; set split.public, such as 0.2")
        new = server | {"t": server["t"] + 1}
        if server["t"] < self.warmup:
            return new | updates.average(updates.by_size())
        x = context.public[torch.randperm(len(context.public), generator=context.draw)[: self.inputs]]
        share = self.uncertainties(updates, context, x)
        flagged = share > self.excess / len(share)
        new["bad"] = torch.maximum(server["bad"], server["bad"].index_copy(0, updates.index, flagged.to(share.dtype)))
        if flagged.all():
            return new
        p = updates.n * ~flagged
        mean = updates.average(p / p.sum())
        if flagged.any():
            models = zip(updates["w"][flagged], updates["buffers"][flagged], strict=True)
            r = torch.stack([negative_target(context.net.at(*model, x), self.temperature) for model in models])
            mean["w"] = self.distil(context.net, mean, x, r.detach())
        return new | mean

    @torch.no_grad()
    def uncertainties(self, updates: Updates, context: ServerContext, x: Tensor) -> Tensor:
        """Return u_k, each answer's share of the entropy of mean predictions over passes with dropout."""
        net, seed = context.net, int(torch.randint(2**31, (), generator=context.draw))
        dropout = [m for m in net.module.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
        U = []
        for w, buffers in zip(updates["w"], updates["buffers"], strict=True):
            personal = net.layout.personal(net.row)
            net.load(net.layout.join(w, buffers, personal))
            net.train(False)
            with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
                torch.manual_seed(seed)  # the same dropout for every model
                for layer in dropout:
                    layer.train(True)
                passes = [net(x).softmax(-1) for _ in range(self.passes if dropout else 1)]
            net.train(False)
            U.append(uncertainty(torch.stack(passes).mean(0)))
        return torch.stack(U) / torch.stack(U).sum().clamp(min=1e-12)

    def distil(self, net: Net, start: Tree, x: Tensor, r: Tensor) -> Tensor:
        """Return the merged weights after steps away from the flagged models."""
        S = len(start["w"])
        net.load(net.layout.join(start["w"], start["buffers"], net.layout.personal(net.row)))
        net.train(False)
        moment = Adam.of(net.w[:S])
        for t in range(1, self.steps + 1):
            logp = log_softmax(net(x) / self.temperature, -1)
            g = net.backward((r * (r.clamp(min=1e-30).log() - logp)).sum(-1).mean())  # mean of KL(r | softmax(z / T))
            net.w[:S].sub_(moment.move_by_rate(g[:S], self.rate, t))
        return net.w[:S].clone()


def uncertainty(p: Tensor) -> Tensor:
    """Return U_k, the sum over inputs of the entropy of the mean prediction."""
    return -(p * p.clamp(min=1e-30).log()).sum()


def negative_target(z: Tensor, temperature: float) -> Tensor:
    """Return r_c, proportional to 1 - softmax(z / T)_c."""
    away = 1 - (z / temperature).softmax(-1)
    return away / away.sum(-1, keepdim=True)
