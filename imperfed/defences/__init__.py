"""Every `Defence` defined in a file of this folder, and those of plug-ins. Adding one needs no other edit."""

from __future__ import annotations

from functools import cache

from imperfed.core.components import Defence
from imperfed.core.registry import Registry, components


@cache
def defences() -> Registry[type[Defence]]:
    """Return all defences by name."""
    return components(__name__, __path__, defences=Defence)
