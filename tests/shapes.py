"""Methods still to come, each as short as its formulas: the proof that the interface fits them.

They also pass the contract suite.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from imperfed.core import Algorithm, Desk, Done, Hall, Tree, Updates


@dataclass(frozen=True)
class IFCA(Algorithm):
    """Two models: "w" and "other". A site trains the one that fits its rows better; a model nobody picks stays."""

    name: ClassVar[str] = "ifca"

    def serve(self, w: Tensor, sites: int) -> Tree:
        return {"other": -w, "picks": torch.tensor([1.0, 0.0]).repeat(sites, 1)}

    def send(self, server: Tree, site: int) -> Tree:
        return {"other": server["other"]}

    def begin(self, desk: Desk) -> Tree:
        nets = [partial(desk.net.at, w, desk.down["buffers"]) for w in both(desk.down)]
        losses = torch.stack([desk.objective.loss(net, desk.whole())[0].mean() for net in nets])
        pick = one_hot(losses.argmin(), 2).float()
        return desk.down | {"w": pick @ both(desk.down), "pick": pick}

    def reply(self, done: Done) -> tuple[Tree, Tree]:
        return {"pick": done.down["pick"]}, done.memory

    def merge(self, server: Tree, updates: Updates, hall: Hall) -> Tree:
        members = updates["pick"].sum(0).unsqueeze(1)
        means = updates["pick"].T @ updates["w"] / members.clamp(min=1)
        w, other = torch.where(members > 0, means, both(server))
        picks = server["picks"].index_copy(0, torch.tensor(updates.who), updates["pick"])
        return super().merge(server, updates, hall) | {"w": w, "other": other, "picks": picks}

    def model(self, server: Tree, site: int) -> tuple[Tensor, Tensor]:
        return server["picks"][site] @ both(server), server["buffers"]


def both(tree: Tree) -> Tensor:
    return torch.stack([tree["w"], tree["other"]])
