"""Every `Defence` defined in a file of this folder. Adding one needs no other edit."""

from __future__ import annotations

from functools import cache

from imperfed.core.components import Defence
from imperfed.core.registry import discover


@cache
def defences() -> dict[str, type[Defence]]:
    """Return all defences by name."""
    return discover(__name__, __path__, (Defence,))
