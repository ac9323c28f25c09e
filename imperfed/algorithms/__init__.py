"""The catalogue: every `Algorithm` and `Objective` defined in a file of this folder. Adding one needs no other edit."""

from __future__ import annotations

from functools import cache

from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import UsageError, unknown
from imperfed.core.labels import Labels
from imperfed.core.objective import Objective
from imperfed.core.registry import discover


@cache
def catalogue() -> dict[str, type[Algorithm] | type[Objective]]:
    """All methods by name. An objective's name runs it under plain averaging."""
    return discover(__name__, __path__, (Algorithm, Objective))


def find(name: str) -> type[Algorithm] | type[Objective]:
    """The method of this name, or an error that offers the nearest."""
    if name not in catalogue():
        raise unknown("algorithm", name, catalogue())
    return catalogue()[name]


def find_objective(name: str) -> type[Objective]:
    """The objective of this name, or an error that offers the nearest."""
    objectives = {n: c for n, c in catalogue().items() if issubclass(c, Objective)}
    if name not in objectives:
        raise unknown("objective", name, objectives)
    return objectives[name]


def reference(kind: type[Labels]) -> Objective:
    """What is minimised on this kind of labels when nothing else was chosen."""
    for c in catalogue().values():
        if issubclass(c, Objective) and c.reference and c.accepts(kind):
            return c()
    able = [name for name, c in catalogue().items() if issubclass(c, Objective) and c.accepts(kind)]
    raise UsageError(f"on {kind.kind} labels the objective must be named. What learns from those: {', '.join(able)}")
