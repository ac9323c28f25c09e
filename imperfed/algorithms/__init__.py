"""The catalogue: every `Algorithm` and `Objective` defined in a file of this folder, and those of plug-ins.

Adding one needs no other edit.
"""

from __future__ import annotations

from functools import cache

from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import UsageError
from imperfed.core.labels import Labels
from imperfed.core.objective import Objective
from imperfed.core.registry import Registry, components


@cache
def catalogue() -> Registry[type[Algorithm] | type[Objective]]:
    """Return all methods by name. An objective's name runs it under plain averaging."""
    return components(__name__, __path__, algorithms=Algorithm, objectives=Objective)


def objectives() -> Registry[type[Objective]]:
    """Return all objectives by name."""
    return catalogue().only(Objective)


def reference(kind: type[Labels]) -> Objective:
    """Return the objective for this kind of labels when none was chosen."""
    able = {name: objective for name, objective in objectives().items() if objective.accepts(kind)}
    for objective in able.values():
        if objective.reference:
            return objective()
    raise UsageError(f"{kind.kind} labels have no default objective; name one of: {', '.join(able)}")
