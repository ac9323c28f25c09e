"""Every `Repair` defined in a file of this folder. Adding one needs no other edit."""

from __future__ import annotations

from functools import cache

from imperfed.core.components import Repair
from imperfed.core.registry import discover


@cache
def repairs() -> dict[str, type[Repair]]:
    """Return all repairs by name."""
    return discover(__name__, __path__, (Repair,))
