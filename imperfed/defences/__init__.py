"""Every `Defence` defined in a file of this folder. Adding one needs no other edit."""

from __future__ import annotations

from functools import cache

from imperfed.core.components import Defence
from imperfed.core.errors import unknown
from imperfed.core.registry import discover


@cache
def defences() -> dict[str, type[Defence]]:
    """All defences by name."""
    return discover(__name__, __path__, (Defence,))


def find(name: str) -> type[Defence]:
    """The defence of this name, or an error that offers the nearest."""
    if name not in defences():
        raise unknown("defence", name, defences())
    return defences()[name]
