"""A problem whose numbers can be worked out by hand: sites that pull the weights towards points of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Batch
from imperfed.core.federation import Federation
from imperfed.core.labels import Exact, Labels
from imperfed.core.network import Network
from imperfed.core.objective import Objective
from imperfed.data.oracle import Oracle
from imperfed.engine.local_training import Local, plan
from imperfed.engine.seeds import generator
from imperfed.testing.toy import Watched, engine


@dataclass(frozen=True)
class Bowl(Objective):
    """a/2 |w - b|^2, where an example is (a, b) and w is all the network has."""

    name: ClassVar[str] = "bowl"
    labels: ClassVar[type[Labels]] = Exact
    reads_network: ClassVar[bool] = True  # it asks the network about no example at all

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        a, b = batch.x[:, 0], batch.x[:, 1:]
        w = net(torch.eye(b.shape[1])).T
        return a / 2 * (w - b).square().sum(1), None


class Narrow(Bowl):
    """A bowl that holds no more than 256 examples at once."""

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        assert len(batch.x) <= 256
        return super().loss(net, batch)


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


# -- two clients: one weight, full gradients ---------------------------------------------------------------------------

# f_1(x) = (x - 1)^2 / 2 and f_2(x) = 3 (x + 1)^2 / 2; from x = 2, two local steps of 0.1 a round.
TWO = ([[1.0, 1.0]], [[3.0, -1.0]])
TWO_STEPS = Local(steps=2, batch=8, lr=0.1, momentum=0.0)


def path(algorithm: Algorithm, *sites: list[list[float]], local: Local = TWO_STEPS) -> tuple[Watched, list[float]]:
    """The global weight after each of three rounds."""
    e = engine(algorithm, Bowl(), bowls(*(sites or TWO)), local, only(2.0), rounds=3)
    points: list[float] = []
    e.run(lambda report: points.append(e.state.server["w"].item()), lambda: False, None)
    return e, points


# -- three unequal clients, two a round: two parameters, batches -------------------------------------------------------

THREE = (
    [[1.0, 1.5, -0.5], [2.0, 0.3, 0.8]],
    [[0.5, -1.0, 1.2], [1.5, 0.7, 0.1], [1.0, 0.2, -0.9]],
    [[0.8, 0.4, 0.6], [1.2, -0.6, 1.1], [0.6, 1.3, -0.2], [1.7, 0.9, 0.5], [1.1, -0.1, -1.4]],
)
START = np.array([1.1, -0.7, 0.6, 0.9])
BATCHES = Local(steps=3, batch=2, lr=0.1, momentum=0.9, weight_decay=0.05)
FALLING = replace(BATCHES, schedule="step", decay_every=1, decay=0.5)
RATES = {"constant": (0.1, 0.1, 0.1), "step": (0.1, 0.05, 0.025)}
"""The learning rates of the three rounds under either."""


class Stretch(nn.Module):
    """Every input times a weight of its own."""

    def __init__(self, u: Tensor) -> None:
        super().__init__()
        self.u = nn.Parameter(u)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.u


def stretched() -> Network:
    """A network whose weights in a bowl are u h, u of the representation and h of the head."""
    u, h = torch.tensor(START, dtype=torch.get_default_dtype()).split(2)
    network = Network(Stretch(u), nn.Linear(2, 1, bias=False))
    network.head.weight.data = h.unsqueeze(0)
    return network


def keeping_the_head(algorithm: Algorithm) -> Algorithm:
    """The same algorithm with the same settings, the head of the network personal."""

    class Keeping(type(algorithm)):  # type: ignore[misc]
        def is_personal(self, name: str) -> bool:
            return name.startswith("head.")

    return Keeping(**{field.name: getattr(algorithm, field.name) for field in fields(algorithm)})


def three(algorithm: Algorithm, local: Local = BATCHES) -> Watched:
    """Three rounds in which two of the three take part."""
    e = engine(algorithm, Bowl(), bowls(*THREE), local, stretched(), rounds=3, participation=2 / 3).go()
    assert {len(report.who) for report in e.reports} == {2}
    assert {k for report in e.reports for k in report.who} == {0, 1, 2}
    return e


class Hand:
    """What a transcription of an algorithm may use of such a run: who, which rows, gradients in NumPy."""

    def __init__(self, e: Watched) -> None:
        self.spec = e.population.spec
        self.S = self.spec.layout.shared
        self.n = np.array(e.population.sizes, dtype=np.float64)
        fed = e.population.federation
        self.rows = [fed.x[a:b].double().numpy() for a, b in pairwise(fed.starts)]
        self.rounds = [(report.round, report.who) for report in e.reports]
        self.x = START[: self.S].copy()
        self.own = {k: START[self.S :].copy() for k in range(3)}

    def p(self, who: tuple[int, ...]) -> np.ndarray:
        """n_k / n over those that take part."""
        return self.n[list(who)] / self.n[list(who)].sum()

    def lr(self, round: int) -> float:
        """The learning rate of a round."""
        return RATES[self.spec.local.schedule][round]

    def batches(self, round: int, k: int) -> list[np.ndarray]:
        """The rows of each of a site's local steps."""
        n = len(self.rows[k])
        spec = self.spec
        rows = plan(spec.algorithm, spec.objective, spec.local, n, generator(0, round, k, "batches")).rows.numpy()
        return [at[at < n] for at in rows]

    def g(self, k: int, w: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
        """The gradient at [u | h] of the mean of a/2 |u h - b|^2 over these rows."""
        a, b = self.rows[k][rows][:, :1], self.rows[k][rows][:, 1:]
        u, h = np.split(w, 2)
        r = (a * (u * h - b)).mean(0)
        return np.concatenate([h * r, u * r])
