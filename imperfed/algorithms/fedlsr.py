"""FedLSR (Jiang et al., "Towards federated learning against noisy labels via local self-regularization", CIKM 2022).

Source: checked against the authors' public notebook; the paper's body was not available.

    symbol     where it lives                                       does it travel
    w, t       server["w"], server["t"], the number of the round    down; w also up
    z1, z2     logits of the batch and of its second view           never
    m          draws["m"], from U(0, 1), which is Beta(1, 1)        never
    p^         `sharpened`                                          never
    gamma_t    `ramp` of down["t"]                                  never

    L = -log p^_y + gamma_t JS(softmax(3 z1), softmax(3 z2)) + lambda_e H

The second view of an image is cropped and mirrored at random, as by `local.augment`. Other inputs are shaken: every
number of a row is moved along a wave of random phase and frequency, with standard deviation `jitter`.

Departs from the paper in: the loss is what the text means, where the notebook applies the softmax twice, divides the
divergence by the number of classes, and takes the entropy of the first view twice. The notebook's t_w is a fifth of all
rounds (`warmup`, in rounds).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from imperfed.algorithms.cross_entropy import CROSS_ENTROPY, refuse_other_objectives
from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalStep, ServerContext
from imperfed.core.errors import not_negative, positive
from imperfed.core.exchange import Exchange, Train, Updates
from imperfed.core.objective import Objective
from imperfed.nn.augment import crop, flip
from imperfed.nn.views import shake

SMALLEST = 1e-6
"""The least probability in the divergence."""


@dataclass(frozen=True)
class FedLSR(Algorithm):
    """For noisy labels: sharpened predictions mixed over two views of every example, which are kept alike."""

    name: ClassVar[str] = "fedlsr"
    changes_inputs: ClassVar[bool] = True
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"gamma": (0.4, 0.1, 1.0)}
    objective: Objective | None = CROSS_ENTROPY
    gamma: float = 0.4  # gamma, the weight of the self-distillation after the warm-up
    warmup: int = 20  # t_w, the rounds over which gamma rises from 0
    lambda_e: float = 0.6  # lambda_e, the weight of the entropy of the predictions
    jitter: float = 0.1  # how far the second view of inputs that are no images is shaken

    def __post_init__(self) -> None:
        not_negative("method", gamma=self.gamma, lambda_e=self.lambda_e, jitter=self.jitter)
        positive("method", warmup=self.warmup)
        refuse_other_objectives(self.name, self.objective)

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {"t": torch.zeros(())}

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (Train(self.merge, send=self.send),)

    def send(self, server: Tree, site: int) -> Tree:
        """Return t, the number of the round."""
        return {"t": server["t"]}

    def draws(self, steps: int, batch: int, generator: torch.Generator) -> Tree:
        views = torch.rand(steps, batch, 3, generator=generator)
        return {"m": torch.rand(steps, generator=generator), "views": views}

    def step_loss(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        batch, y = step.batch, step.batch.labels.values
        z1 = step.net(batch.x)
        z2 = step.net.in_passing(second_view(batch.x, batch.draws["views"], self.jitter))
        loss = -sharpened(z1, z2, batch.draws["m"]).gather(1, y[:, None]).flatten()  # -log p^_y
        loss = loss + self.gamma * self.ramp(step.down["t"]) * divergence(z1, z2)  # + gamma_t JS(a, b)
        loss = loss + self.lambda_e * (entropy(z1) + entropy(z2)) / 2  # + lambda_e H
        return batch.mean(loss), None

    def ramp(self, t: Tensor) -> Tensor:
        """Return gamma_t / gamma = min(1, t / t_w)."""
        return (t / self.warmup).clamp(max=1)

    @property
    def needs_only_the_mean(self) -> bool:
        return True

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        return super().merge(server, updates, context) | {"t": server["t"] + 1}


def sharpened(z1: Tensor, z2: Tensor, m: Tensor) -> Tensor:
    """Return log p^, p^ = p^2 / sum p^2 with p = m softmax(z1) + (1 - m) softmax(z2)."""
    mixed = torch.logaddexp(log_softmax(z1, -1) + m.log(), log_softmax(z2, -1) + torch.log1p(-m))
    return log_softmax(2 * mixed, -1)


def divergence(z1: Tensor, z2: Tensor) -> Tensor:
    """Return JS(a, b) of every example, with a = softmax(3 z1), b = softmax(3 z2)."""
    a, b = (torch.softmax(3 * z, -1).clamp(min=SMALLEST) for z in (z1, z2))
    middle = ((a + b) / 2).log()
    return ((a * (a.log() - middle)).sum(-1) + (b * (b.log() - middle)).sum(-1)) / 2


def entropy(z: Tensor) -> Tensor:
    """Return H(softmax(z)) of every example."""
    logp = log_softmax(z, -1)
    return -(logp.exp() * logp).sum(-1)


def second_view(x: Tensor, u: Tensor, jitter: float) -> Tensor:
    """Return another view of the inputs, from three random numbers per row."""
    if x.ndim == 4:
        return flip(crop(x, u[:, :2]), u[:, 2])
    return shake(x, u, jitter)
