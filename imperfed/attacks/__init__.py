"""Every `Attack` defined in a file of this folder. Adding one needs no other edit."""

from __future__ import annotations

from functools import cache

from imperfed.core.components import Attack
from imperfed.core.registry import discover


@cache
def attacks() -> dict[str, type[Attack]]:
    """Return all attacks by name."""
    return discover(__name__, __path__, (Attack,))
