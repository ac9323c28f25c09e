"""FedMLH (Dai, Dun, Tang, Kyrillidis, Shrivastava, "Federated multiple label hashing (FedMLH): communication efficient
federated learning on extreme classification tasks", 2021).

Source: checked against the authors' code.

    symbol         where it lives                                                   does it travel
    net_r          `rep.tables`, one network with B outputs per table               down and up
    h_r(c)         `bucket`: MurmurHash3 of c with seed r, modulo B                 never: every site computes it
    H              the head, which is frozen: 1 at (c, r B + h_r(c)), otherwise 0   never
    target         bucket b of table r is 1 if some class of the row falls in it    never

    a site:      sum_r mean_b BCE(net_r(x)_b, target_rb), Adam, whose state starts at zero in every round
    the server:  the plain mean, table by table
    prediction:  score(c) = sum_r net_r(x)[h_r(c)], which is the head's product with all outputs

Only R B outputs travel in place of C. `local.lr` is Adam's; the authors' is 0.001.

Departs from the paper in: features are not hashed; a table's network is the run's model, where the authors have two
hidden layers of 400; the head takes C R B numbers of memory at every site, which never travel.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from imperfed.algorithms.assume_negative import AssumeNegative, known_classes
from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalStep, ServerContext
from imperfed.core.errors import UsageError, positive
from imperfed.core.exchange import Updates
from imperfed.core.labels import Positives
from imperfed.core.network import Network
from imperfed.core.objective import Objective
from imperfed.nn.optimizers import AdamOptimizer

ADAM = AdamOptimizer()


class Tables(nn.Module):
    """R networks of the same shape with B outputs each, side by side: [n, R B]."""

    def __init__(self, network: Network, tables: int, buckets: int) -> None:
        super().__init__()
        reps = [network.rep, *(copy.deepcopy(network.rep) for _ in range(tables - 1))]
        for module in (m for rep in reps[1:] for m in rep.modules()):
            if callable(draw := getattr(module, "reset_parameters", None)):
                draw()
        self.tables = nn.ModuleList(nn.Sequential(rep, nn.Linear(network.head.in_features, buckets)) for rep in reps)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([table(x) for table in self.tables], -1)


@dataclass(frozen=True)
class FedMLH(Algorithm):
    """For very many classes: they share the buckets of a few hash tables, each with a network of its own."""

    name: ClassVar[str] = "fedmlh"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"buckets": (500, 100, 50)}
    objective: Objective | None = field(default=AssumeNegative())
    tables: int = 4  # R
    buckets: int = 500  # B

    def __post_init__(self) -> None:
        positive("method", tables=self.tables, buckets=self.buckets)
        if not isinstance(self.objective, AssumeNegative):
            raise UsageError(f"fedmlh learns buckets by {AssumeNegative.name} and takes no other objective")

    @property
    def fixed_recipe(self) -> dict[str, str]:
        return {"optimizer": "its steps are those of Adam already"}

    def build(self, network: Network) -> Network:
        classes, outputs = network.head.out_features, self.tables * self.buckets
        head = nn.Linear(outputs, classes, bias=False).requires_grad_(False)
        at = [[r * self.buckets + bucket(c, r, self.buckets) for r in range(self.tables)] for c in range(classes)]
        head.weight.zero_().scatter_(1, torch.tensor(at), 1.0)
        hashed = Network(Tables(network, self.tables, self.buckets), head)
        hashed.halved = network.halved
        return hashed

    def init_optimizer(self, w: Tensor, down: Tree, memory: Tree) -> Tree:
        return ADAM.init(w)

    def move(self, g: Tensor, step: LocalStep) -> None:
        ADAM.move(g, step)

    def step_loss(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        batch, H = step.batch, step.net.module.head.weight
        target = known_classes(batch.labels).to(H.dtype) @ H > 0  # OR over the row's classes
        hashed = replace(batch, labels=Positives(target, H.shape[1]))
        values, out = objective.loss(step.net.features, hashed)
        return self.tables * batch.mean(values), out  # the mean over all outputs, times R

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        return server | updates.average(updates.uniform())


def bucket(c: int, r: int, buckets: int) -> int:
    """Return h_r(c)."""
    return murmur3(c, r) % buckets


def murmur3(key: int, seed: int) -> int:
    """Return the 32-bit MurmurHash3 of a number, taken as four bytes from the lowest on, as a signed number."""
    h = seed ^ rotated(key * 0xCC9E2D51, 15) * 0x1B873593 & WORD
    h = rotated(h, 13) * 5 + 0xE6546B64 & WORD
    h ^= 4  # the number of bytes
    h = (h ^ h >> 16) * 0x85EBCA6B & WORD
    h = (h ^ h >> 13) * 0xC2B2AE35 & WORD
    h ^= h >> 16
    return h - (WORD + 1 if h >> 31 else 0)


WORD = 0xFFFFFFFF
"""The largest number of 32 bits."""


def rotated(number: int, bits: int) -> int:
    """Return the low 32 bits of a number, rotated to the left."""
    number &= WORD
    return (number << bits | number >> 32 - bits) & WORD
