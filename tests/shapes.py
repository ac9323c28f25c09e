"""Six well-known methods, each as short as its formulas: the proof that the interface fits what has not come yet.

They also pass the contract suite. The problem they are run on has numbers that can be worked out by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from imperfed.core import (
    Algorithm,
    Batch,
    Desk,
    Done,
    Exchange,
    Federation,
    Hall,
    Objective,
    Site,
    Step,
    Tree,
    Updates,
)
from imperfed.labels import Exact, Labels
from imperfed.network import Network
from imperfed.oracle import Oracle


@dataclass(frozen=True)
class Bowl(Objective):
    """a/2 |w - b|^2, where an example is (a, b) and w is all the network has."""

    name: ClassVar[str] = "bowl"
    labels: ClassVar[type[Labels]] = Exact

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        a, b = batch.x[:, 0], batch.x[:, 1:]
        w = net(torch.eye(b.shape[1])).T
        return a / 2 * (w - b).square().sum(1), None


def bowls(*sites: list[list[float]]) -> tuple[Federation, Oracle]:
    """A federation whose sites hold these examples (a, b)."""
    x = torch.tensor([row for rows in sites for row in rows])
    starts = tuple(sum(map(len, sites[:k])) for k in range(len(sites) + 1))
    names = tuple(f"site{k}" for k in range(len(sites)))
    ids = tuple(map(str, range(len(x))))
    labels = Exact(torch.zeros(len(x), dtype=torch.int64), 1)
    test_x, test_y = torch.zeros(1, x.shape[1] - 1), torch.zeros(1, dtype=torch.int64)
    federation = Federation("bowls", x, labels, starts, names, ("only",), ids, x.new_empty(0)).check()
    return federation, Oracle(None, (test_x,) * len(sites), (test_y,) * len(sites))


def only(*w: float) -> Network:
    """A network that is nothing but these weights."""
    head = nn.Linear(len(w), 1, bias=False)
    head.weight.data = torch.tensor([w])
    return Network(nn.Identity(), head)


@dataclass(frozen=True)
class FedProx(Algorithm):
    name: ClassVar[str] = "fedprox"
    mu: float = 1.0

    def correct(self, g: Tensor, step: Step) -> Tensor:
        return g + self.mu * (step.w - step.down["w"])


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """Option II, which takes the steps for those of plain gradient descent."""

    name: ClassVar[str] = "scaffold"

    def serve(self, w: Tensor, sites: int) -> Tree:
        return {"c": torch.zeros_like(w), "K": torch.tensor(float(sites))}

    def open(self, site: Site) -> Tree:
        return {"c": torch.zeros(site.layout.shared)}

    def send(self, server: Tree, site: int) -> Tree:
        return {"c": server["c"]}

    def correct(self, g: Tensor, step: Step) -> Tensor:
        return g - step.memory["c"] + step.down["c"]

    def move(self, g: Tensor, step: Step) -> None:
        step.w.sub_(g, alpha=step.lr)

    def reply(self, done: Done) -> tuple[Tree, Tree]:
        c, moved = done.memory["c"], done.down["w"] - done.net.w
        new = c - done.down["c"] + moved / (done.steps * done.lr)
        return {"dc": new - c}, {"c": new}

    def merge(self, server: Tree, updates: Updates, hall: Hall) -> Tree:
        new = updates.average(torch.full_like(updates.n, 1 / len(updates.n)))
        return server | new | {"c": server["c"] + updates["dc"].sum(0) / server["K"]}


@dataclass(frozen=True)
class FedNAG(Algorithm):
    name: ClassVar[str] = "fednag"
    gamma: float = 0.5

    def serve(self, w: Tensor, sites: int) -> Tree:
        return {"v": torch.zeros_like(w)}

    def send(self, server: Tree, site: int) -> Tree:
        return {"v": server["v"]}

    def start(self, w: Tensor, down: Tree, memory: Tree) -> Tree:
        return {"v": down["v"].clone()}

    def move(self, g: Tensor, step: Step) -> None:
        v = step.slots["v"].mul_(self.gamma).sub_(g, alpha=step.lr)
        step.w.add_(self.gamma * v - step.lr * g)

    def reply(self, done: Done) -> tuple[Tree, Tree]:
        return {"v": done.slots["v"]}, done.memory

    def merge(self, server: Tree, updates: Updates, hall: Hall) -> Tree:
        return super().merge(server, updates, hall) | {"v": updates.by_size() @ updates["v"]}


@dataclass(frozen=True)
class Mime(Algorithm):
    """SGD with momentum in the convex-combination form; the momentum is frozen during a round."""

    name: ClassVar[str] = "mime"
    beta: float = 0.5

    def serve(self, w: Tensor, sites: int) -> Tree:
        return {"m": torch.zeros_like(w), "c": torch.zeros_like(w)}

    def send(self, server: Tree, site: int) -> Tree:
        return {"m": server["m"], "c": server["c"]}

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return Exchange("gradient", self.collect, self.gradient), Exchange("train", self.merge)

    def gradient(self, desk: Desk) -> Tree:
        values, _ = desk.objective.loss(desk.net, desk.whole())
        return {"g": desk.net.backward(values.mean())}

    def collect(self, server: Tree, updates: Updates, hall: Hall) -> Tree:
        return server | {"c": updates.by_size() @ updates["g"]}

    def local(self, objective: Objective, step: Step) -> tuple[Tensor, Any]:
        x = step.down["w"].clone().requires_grad_()
        there, _ = objective.loss(partial(step.net.at, x, step.down["buffers"]), step.batch)
        (g_x,) = torch.autograd.grad(step.batch.mean(there), x)
        loss, out = self.total(objective, step)
        d = step.net.backward(loss) - g_x + step.down["c"]
        step.w.sub_((1 - self.beta) * d + self.beta * step.down["m"], alpha=step.lr)
        return loss.detach(), out

    def merge(self, server: Tree, updates: Updates, hall: Hall) -> Tree:
        m = (1 - self.beta) * server["c"] + self.beta * server["m"]
        return super().merge(server, updates, hall) | {"m": m}


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


@dataclass(frozen=True)
class Krum(Algorithm):
    name: ClassVar[str] = "krum"
    f: int = 0

    def scores(self, V: Tensor) -> Tensor:
        """The sum of the squared distances to the n - f - 2 nearest others."""
        D = (V.unsqueeze(0) - V.unsqueeze(1)).square().sum(-1)
        nearest = max(1, len(V) - self.f - 2)
        return D.sort(1).values[:, 1 : 1 + nearest].sum(1)

    def merge(self, server: Tree, updates: Updates, hall: Hall) -> Tree:
        best = self.scores(updates["w"] - server["w"]).argmin()
        return server | updates.average(one_hot(best, len(updates.who)).float())
