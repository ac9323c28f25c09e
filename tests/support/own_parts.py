"""Parts of a run as a user writes them: a method, an objective and a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from imperfed.algorithms.cc import CC
from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Batch, Tree
from imperfed.core.context import ServerContext
from imperfed.core.exchange import Updates


@dataclass(frozen=True)
class HalfWay(Algorithm):
    """The server moves part of the way."""

    name: ClassVar[str] = "half-way"
    share: float = 0.5

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        new = updates.average(updates.by_size())
        return server | new | {"w": torch.lerp(server["w"], new["w"], self.share)}


@dataclass(frozen=True)
class Tempered(CC):
    """CC at another temperature."""

    name: ClassVar[str] = "tempered"
    heat: float = 2.0

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        return super().loss(lambda x: net(x) / self.heat, batch)


class Net(nn.Module):
    """A network of one hidden layer, for rows of four numbers and three classes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, width)
        self.out = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.hidden(x).relu())
        return logits


def wide(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network for any rows."""
    return nn.Sequential(nn.Flatten(), nn.Linear(*shape, 7), nn.Dropout(0.2), nn.Linear(7, classes))
