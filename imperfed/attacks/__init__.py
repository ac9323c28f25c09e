"""Every `Attack` defined in a file of this folder, and those of plug-ins. Adding one needs no other edit."""

from __future__ import annotations

from functools import cache

from imperfed.core.components import Attack
from imperfed.core.registry import Registry, components


@cache
def attacks() -> Registry[type[Attack]]:
    """Return all attacks by name."""
    return components(__name__, __path__, attacks=Attack)
