"""Every `Repair` defined in a file of this folder. Adding one needs no other edit."""

from __future__ import annotations

from functools import cache

from imperfed.core.components import Repair
from imperfed.core.errors import unknown
from imperfed.core.registry import discover


@cache
def repairs() -> dict[str, type[Repair]]:
    """All repairs by name."""
    return discover(__name__, __path__, (Repair,))


def find(name: str) -> type[Repair]:
    """The repair of this name, or an error that offers the nearest."""
    if name not in repairs():
        raise unknown("repair", name, repairs())
    return repairs()[name]
