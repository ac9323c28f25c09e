"""What the contract is checked on: a method, with every objective it may minimise."""

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
        """The kind of labels it learns from."""
        return self.objective.labels

    @property
    def trains(self) -> bool:
        """Whether the sites make local steps."""
        return any(isinstance(exchange, Train) for exchange in self.algorithm.exchanges(0))

    def __str__(self) -> str:
        return f"{self.algorithm.name}-{self.objective.name}"


def cases_of(method: Algorithm | Objective) -> list[Case]:
    """Return the cases of one method.

    An objective runs under plain averaging; an algorithm without an objective of its own, with every reference.
    """
    if isinstance(method, Objective):
        return [Case(FedAvg(), method)]
    if method.objective is not None:
        return [Case(method, method.objective)]
    objectives = [known() for known in catalogue().values() if issubclass(known, Objective) and known.reference]
    return [Case(method, objective) for objective in objectives]


def cases() -> list[Case]:
    """Return the cases of the whole catalogue, objectives first."""
    methods = sorted(catalogue().values(), key=lambda method: not issubclass(method, Objective))
    return list(dict.fromkeys(case for method in methods for case in cases_of(method())))
