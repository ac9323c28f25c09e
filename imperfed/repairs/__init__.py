"""Every `Repair` defined in a file of this folder, and those of plug-ins. Adding one needs no other edit."""

from __future__ import annotations

from functools import cache

from imperfed.core.components import Repair
from imperfed.core.registry import Registry, components


@cache
def repairs() -> Registry[type[Repair]]:
    """Return all repairs by name."""
    return components(__name__, __path__, repairs=Repair)
