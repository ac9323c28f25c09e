"""What the contract is held against: every method of the catalogue, on every kind of labels it can learn from."""

from __future__ import annotations

from dataclasses import dataclass

from imperfed.algorithms import catalogue
from imperfed.algorithms.fedavg import FedAvg
from imperfed.core.algorithm import Algorithm
from imperfed.core.exchange import Train
from imperfed.core.labels import Labels
from imperfed.core.objective import Objective


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
    methods = [method() for method in catalogue().values()]
    objectives = [method for method in methods if isinstance(method, Objective)]
    references = [objective for objective in objectives if objective.reference]
    found = [Case(FedAvg(), objective) for objective in objectives]
    for algorithm in methods:
        if isinstance(algorithm, Algorithm):
            mine = references if algorithm.objective is None else [algorithm.objective]
            found += [Case(algorithm, objective) for objective in mine]
    return list(dict.fromkeys(found))
