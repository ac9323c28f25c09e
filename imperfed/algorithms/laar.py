"""FedPLL-LAAR (Yan and Guo, "Federated partial label learning with local-adaptive augmentation and regularization",
AAAI 2024).

Source: the three parts are named in the abstract; their equations were checked against third parties' code only (two
independent re-implementations; part 2 is in one of them). Neither the paper's body nor the authors' code was available.

    symbol      where it lives                        does it travel
    w           server["w"]                           down and up, whole; F is the network at the weights received
    g_G         server["g"]                           down; up as "g" only where `global_grad` is "one-batch"
    g_L         step.net.gradient                     never
    q           rows["q"], one row per example        never; also the inferred labels
    gamma, pi   draws["gamma"], draws["keys"]         never
    F           step.net.at(down["w"], ...)           never

Departs from the paper in: what makes the alignment adaptive is in neither re-implementation, so its weight is a
constant; g_G is by default the last round's movement of the global model, which costs no upload ("one-batch" is what
the re-implementations do). The alignment is left out in the first round, when g_G is 0. The mixed batch goes through
the network in training mode without changing the normalisation buffers; F runs in evaluation mode.

The gradient of the alignment does not shrink with the loss: with two layers on 8 x 8 digits `lambda_ga` = 1, the value
of the re-implementations, drowned the other terms, and 0.01 did no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Batch, Tree
from imperfed.core.context import LocalStep, ServerContext, SiteContext
from imperfed.core.errors import UsageError, positive
from imperfed.core.exchange import Exchange, Query, Train, Updates
from imperfed.core.labels import Candidates
from imperfed.core.objective import Objective
from imperfed.nn.double_backward import DoubleBackward
from imperfed.nn.losses import masked_best, weighted_ce
from imperfed.nn.pairs import draw_pairs, draw_shares, partners


@dataclass(frozen=True)
class Disambiguation(Objective):
    """Part 1: cross-entropy on a moving average of the candidates picked so far."""

    name: ClassVar[str] = "laar-disambiguation"
    labels: ClassVar[type[Candidates]] = Candidates
    mu: float = 0.99  # mu, the share of the old q that is kept

    def __post_init__(self) -> None:
        if not 0 <= self.mu <= 1:
            raise UsageError(f"setting objective.mu must lie between 0 and 1; got {self.mu:g}")

    def init_rows(self, labels: Candidates) -> Tree:
        return {"q": labels.uniform()}  # q_j = 1/|S|

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        z = net(batch.x)
        best = masked_best(z.detach(), batch.labels.values)  # onehot of argmax_{j in S} z_j
        q = self.mu * batch.rows["q"] + (1 - self.mu) * best  # q <- mu q + (1 - mu) onehot
        return weighted_ce(q, z), q  # L_c = -sum_j q_j log p_j, with the new q

    def update_rows(self, net: Callable[[Tensor], Tensor], batch: Batch, out: Any) -> Tree:
        return {"q": out}

    def infer_labels(self, logits: Tensor, labels: Candidates, rows: Tree) -> Tensor:
        return rows["q"]


@dataclass(frozen=True)
class LAAR(Algorithm):
    """Moving-average labels, MixUp weighted by the frozen global model, local gradients aligned with a global one."""

    name: ClassVar[str] = "laar"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"lambda_ga": (1.0, 0.1, 0.01)}
    changes_inputs: ClassVar[bool] = True
    objective: Objective | None = Disambiguation()
    alpha: float = 0.2  # alpha of Beta(alpha, alpha), from which gamma is drawn
    lambda_mix: float = 1.0  # weight of L_mix
    lambda_ga: float = 1.0  # weight of L_ga
    global_grad: Literal["pseudo", "one-batch"] = "pseudo"  # g_G

    def __post_init__(self) -> None:
        positive("method", alpha=self.alpha)
        if not isinstance(self.objective, Disambiguation):
            raise UsageError("laar mixes the labels inferred by its own objective, laar-disambiguation, and needs it")

    def draws(self, steps: int, batch: int, generator: torch.Generator) -> Tree:
        gamma = draw_shares(self.alpha, steps, generator)
        return {"gamma": gamma, **draw_pairs(steps, batch, generator)}

    def step_loss(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        with DoubleBackward():  # L_ga contains the gradient of L_c
            values, q = objective.loss(step.net, step.batch)
        loss = L_c = step.batch.mean(values)
        if self.lambda_mix:
            loss = loss + self.lambda_mix * step.batch.mean(mixup(q, step))
        if self.lambda_ga:
            loss = loss + self.lambda_ga * alignment(step.net.gradient(L_c), step.down["g"])
        return loss, q  # L_c + lambda_mix L_mix + lambda_ga L_ga

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {"g": torch.zeros_like(w)}

    def send(self, server: Tree, site: int) -> Tree:
        """Return g_G, with which local gradients are aligned."""
        return {"g": server["g"]}

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        train = Train(self.merge, send=self.send)
        if self.global_grad == "one-batch" and round:
            return Query("gradient", self.gather, respond=self.answer_gradient), train
        return (train,)

    def answer_gradient(self, site: SiteContext) -> Tree:
        """Return the gradient of L_c on one batch at the weights received; q stays as it is."""
        L_c = site.batch.mean(weighted_ce(site.batch.rows["q"], site.net(site.batch.x)))
        return {"g": site.net.backward(L_c).clone()}

    def gather(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Set g_G of "one-batch": the mean of the sites' gradients, weighted by their sizes."""
        return server | {"g": updates.weighted_sum("g", updates.by_size())}  # sum_k n_k g_k / n

    @property
    def needs_only_the_mean(self) -> bool:
        return True

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        new = super().merge(server, updates, context)
        if self.global_grad == "pseudo":
            new["g"] = (server["w"] - new["w"]) / context.lr  # g_G = (w_{t-1} - w_t) / eta
        return new


def mixup(q: Tensor, step: LocalStep) -> Tensor:
    """Return L_mix of every example (part 2), weighted by the global model's confidence before and after mixing."""
    batch, gamma = step.batch, step.batch.draws["gamma"]
    pi = partners(batch)
    x = gamma * batch.x + (1 - gamma) * batch.x[pi]  # x~ = gamma x + (1 - gamma) x_pi
    q = gamma * q + (1 - gamma) * q[pi]  # q~ = gamma q + (1 - gamma) q_pi
    with torch.no_grad():
        alone, together = sureness(step, torch.cat([batch.x, x])).chunk(2)
        sure = (gamma * alone + (1 - gamma) * alone[pi]) * together  # w = w1 w2
    return sure * weighted_ce(q, step.net.in_passing(x))  # L_mix = w (-sum_j q~_j log p_j(x~))


def sureness(step: LocalStep, x: Tensor) -> Tensor:
    """Return the largest probability that the frozen global model gives, max_c F(x)_c."""
    return step.net.at(step.down["w"], step.down["buffers"], x).softmax(-1).amax(-1)


def alignment(g_L: Tensor, g_G: Tensor) -> Tensor:
    """Return L_ga = -cos(g_L, g_G) (part 3), differentiable in g_L; 0 where either norm is below 1e-8."""
    local, world = g_L.square().sum(), g_G.square().sum()
    long = (local > 1e-16) & (world > 1e-16)
    # The square root has no gradient at 0: where the cosine is not used, take the root of 1 instead.
    length = torch.where(long, local, 1.0).sqrt() * torch.where(long, world, 1.0).sqrt()
    return torch.where(long, -(g_L * g_G).sum() / length, 0.0)
