"""What the contract is held against: every method of the catalogue, on every kind of labels it can learn from."""

from __future__ import annotations

from dataclasses import dataclass

from imperfed.core.algorithm import Algorithm
from imperfed.core.exchange import Train
from imperfed.core.labels import Labels
from imperfed.core.objective import Objective
from tests.support.methods import algorithms, averaging, objectives


@dataclass(frozen=True)
class Case:
    """An algorithm and the objective it minimises."""

    algorithm: Algorithm
    objective: Objective

    @property
    def kind(self) -> type[Labels]:
        return self.objective.labels

    @property
    def trains(self) -> bool:
        """Whether the sites make local steps."""
        return any(isinstance(exchange, Train) for exchange in self.algorithm.exchanges(0))

    def __str__(self) -> str:
        return f"{self.algorithm.name}-{self.objective.name}"


def cases() -> list[Case]:
    """An objective runs under plain averaging; an algorithm without one of its own, with every reference objective."""
    references = [objective for objective in objectives() if objective.reference]
    pairs = [Case(averaging(), objective) for objective in objectives()]
    for algorithm in algorithms():
        own = references if algorithm.objective is None else [algorithm.objective]
        pairs += [Case(algorithm, objective) for objective in own]
    return list(dict.fromkeys(pairs))
