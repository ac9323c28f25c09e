"""What the coordinator sees of a round: what it sent to a site, and the site's answers.

The answers are those of the engine's own exchanges, after everything that a site does to them before it sends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.exchange import Train, WeightedGradient
from imperfed.engine.backends.base import Reply
from imperfed.engine.backends.sequential import SequentialBackend
from imperfed.engine.engine import Engine
from imperfed.engine.failures import Failure
from imperfed.engine.population import Population


@dataclass(frozen=True)
class SeenExchange:
    """One exchange with one site, as the coordinator knows it."""

    name: str
    trained: bool
    """Whether the answer comes from local steps; otherwise it is a gradient."""
    down: Tree
    up: Tree

    @property
    def moved(self) -> Tensor:
        """How far the shared weights moved, along the gradient: the gradient times learning rate and steps."""
        return self.down["w"] - self.up["w"] if self.trained else self.up["g"]


class ObservingBackend(SequentialBackend):
    """The backend of one process, which keeps what passes between the coordinator and the sites it watches."""

    def __init__(self, population: Population) -> None:
        """Begin as any backend of one process does, and watch no site yet."""
        super().__init__(population)
        self.watched: frozenset[int] = frozenset()
        self.seen: dict[int, list[SeenExchange]] = {}

    def ask(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Reply | Failure]:
        """Return the answers to an exchange."""
        exchange = self.population.spec.exchange(round, number)
        downs = {k: copied(self.population.down(k, exchange)) for k in sites if k in self.watched}
        replies = super().ask(round, number, sites)
        for k, down in downs.items():
            if isinstance(reply := replies[k], Reply):
                self.keep(k, SeenExchange(exchange.name, isinstance(exchange, Train), down, copied(reply.up)))
        return replies

    def sum_gradients(self, round: int, number: int, sites: Sequence[int], weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weighted sum of gradients; a real site sends its own, which is kept."""
        exchange = self.population.spec.exchange(round, number)
        for k in self.watched.intersection(sites):
            down = copied(self.population.down(k, exchange))
            own, _ = super().sum_gradients(round, number, [k], weights.new_ones(1))
            self.keep(k, SeenExchange(exchange.name, False, down, {"g": own.detach().clone()}))
        return super().sum_gradients(round, number, sites, weights)

    def keep(self, k: int, exchange: SeenExchange) -> None:
        """Keep what was seen of a site."""
        self.seen.setdefault(k, []).append(exchange)


def copied(tree: Tree) -> Tree:
    """Return a tree that later exchanges do not change."""
    return {name: t.detach().clone() for name, t in tree.items()}


def observe(engine: Engine, sites: int) -> tuple[int, dict[int, list[SeenExchange]]]:
    """Carry out the engine's next round; return its number and what was seen of the first sites on duty."""
    backend, round = engine.backend, engine.state.round
    assert isinstance(backend, ObservingBackend)
    backend.watched = frozenset(engine.sample(round)[:sites])
    engine.round(round)
    return round, backend.seen


def attacked(seen: Sequence[SeenExchange]) -> SeenExchange | None:
    """Return the exchange that gives most away: that of training, or of a gradient; None if nothing of a model is sent.

    It is the last one, since an exchange before it may choose what training starts from.
    """
    models = [one for one in seen if ("w" if one.trained else "g") in one.up]
    return models[-1] if models and models[-1].moved.numel() else None


def is_gradient(engine: Engine, round: int) -> bool:
    """Return whether sites answer with the gradient over all their rows, instead of training in batches."""
    return all(isinstance(one, WeightedGradient) for one in engine.population.spec.algorithm.exchanges(round))
