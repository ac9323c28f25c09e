"""The common part of FedAwS, FedALC and the methods with fixed class embeddings: one class per row is known.

FedAwS (Yu et al., "Federated learning with only positive labels", ICML 2020) and FedALC (An et al., "Federated learning
with only positive labels by exploring label correlations"). Equation numbers: FedALC's.

    symbol     where it lives                           does it travel
    theta      server["w"] without its head             down and up, mean of all
    W          the head of server["w"], [C, D]          down and up, whole; in the papers row y, where class y is held
    g(x)       representation, divided by its length    never

`traffic` counts what the papers would send.

Where a site holds one label and makes one step per round on all its rows, the mean of the sites' models is one step
along the mean gradient: with `one_pass` the engine makes a single pass over all rows for all sites and copies no model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from imperfed.algorithms.positive_hinge import PositiveHinge
from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalStep, ServerContext
from imperfed.core.errors import UsageError, not_negative, positive
from imperfed.core.exchange import Exchange, Train, Updates, WeightedGradient
from imperfed.core.labels import Positive
from imperfed.core.network import Network
from imperfed.core.objective import Objective
from imperfed.nn.embeddings import cosine_scores

HEAD = "head.weight"


@dataclass(frozen=True)
class ClassEmbeddings(Algorithm):
    """Averaging of theta; subclasses define how W is updated. Here W stays as it is."""

    rate_setting: ClassVar[str] = "method.lr_theta"
    objective: Objective | None = field(default=PositiveHinge())
    lr_theta: float = 0.5  # eta of theta, instead of local.lr; the paper uses 0.1 for both
    by_size: bool = True  # theta by n_k / n (Eq. 5); otherwise the plain mean (Alg. 1, line 19)
    one_pass: bool = False  # one step per round on all rows instead of local.steps, all sites in a single pass

    def __post_init__(self) -> None:
        if self.objective is not None and not self.objective.accepts(Positive):
            raise UsageError(f"{self.name} learns from positive labels; {self.objective.name} does not")
        positive("method", lr_theta=self.lr_theta)
        not_negative("method", rate_w=self.rate_w)

    @property
    def fixed_recipe(self) -> dict[str, str]:
        own_rates = "its learning rates are lr_theta for theta and another for W, and local.lr is not used"
        return {"optimizer": "the paper's step is plain SGD with a rate each for theta and W", "schedule": own_rates}

    @property
    def rate_w(self) -> float:
        """The learning rate of a class embedding at its site."""
        return 0.0

    def build(self, network: Network) -> Network:
        if self.one_pass and any(b.is_floating_point() for b in network.buffers()):
            raise UsageError(
                "with one_pass sites send gradients only, so the running statistics of normalisation layers are never "
                "learned; set one_pass=false or choose a model without such layers"
            )
        return cosine_scores(network)  # Eq. 2

    def move(self, g: Tensor, step: LocalStep) -> None:
        step.net.layout.view(g, HEAD).mul_(self.rate_w / self.lr_theta)
        step.w.sub_(g, alpha=self.lr_theta)  # Alg. 1, line 15; the server normalises the rows of W

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        if self.one_pass:
            return (WeightedGradient("gradient", self.descend, weights=self.shares, traffic=self.traffic),)
        return (Train(self.merge),)

    def shares(self, n: Tensor) -> Tensor:
        """Return the weight of each site in the mean of theta."""
        return n / n.sum() if self.by_size else torch.full_like(n, 1 / len(n))

    def traffic(self, server: Tree, context: ServerContext) -> tuple[int, int]:
        """Return how many numbers a site receives and sends in a round; its row of W is sent in the first one only."""
        W = context.net.layout.view(server["w"], HEAD)
        theta = server["w"].numel() - W.numel() + server["buffers"].numel()
        return theta + (W.shape[1] if context.round == 0 else 0), theta

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Update theta and W from the sites' own copies (Alg. 1, lines 19 to 21)."""
        new = updates.average(self.shares(updates.n))  # line 19
        W = context.net.layout.view(server["w"], HEAD)
        moved, more = self.rows(server, updates, context)
        return self.place(server | new | more, W, moved, context)

    def descend(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Update theta and W from the weighted sum of the sites' gradients."""
        g, view = updates["g"][0], context.net.layout.view
        new = server | {"w": server["w"] - self.lr_theta * g}
        moved, more = self.rows_at_once(server, updates, view(g, HEAD), context)
        return self.place(new | more, view(server["w"], HEAD), moved, context)

    def place(self, server: Tree, before: Tensor, W: Tensor, context: ServerContext) -> Tree:
        """Return the server's memory with the new class embeddings written into the model."""
        w = server["w"].clone()
        context.net.layout.view(w, HEAD).copy_(self.embed(server, before, normalize(W), context))
        return server | {"w": w}

    def rows(self, server: Tree, updates: Updates, context: ServerContext) -> tuple[Tensor, Tree]:
        """Return W from the sites' rows (line 20), and what else the server remembers about it."""
        return context.net.layout.view(server["w"], HEAD), {}

    def rows_at_once(self, server: Tree, updates: Updates, g: Tensor, context: ServerContext) -> tuple[Tensor, Tree]:
        """Return the same as `rows`, from the weighted sum of the sites' gradients at W."""
        return context.net.layout.view(server["w"], HEAD), {}

    def embed(self, server: Tree, before: Tensor, W: Tensor, context: ServerContext) -> Tensor:
        """Return the class embeddings after the server's own step."""
        return W
