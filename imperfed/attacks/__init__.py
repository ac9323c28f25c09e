"""Every `Attack` defined in a file of this folder. Adding one needs no other edit."""

from __future__ import annotations

from functools import cache

from imperfed.core.components import Attack
from imperfed.core.errors import unknown
from imperfed.core.registry import discover


@cache
def attacks() -> dict[str, type[Attack]]:
    """All attacks by name."""
    return discover(__name__, __path__, (Attack,))


def find(name: str) -> type[Attack]:
    """The attack of this name, or an error that offers the nearest."""
    if name not in attacks():
        raise unknown("attack", name, attacks())
    return attacks()[name]
