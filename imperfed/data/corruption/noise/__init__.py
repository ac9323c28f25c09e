"""How labels become wrong: every `Noise` in a file of this folder, and of plug-ins. Adding one needs no other edit."""

from __future__ import annotations

from functools import cache

from imperfed.core.registry import Registry, components
from imperfed.data.corruption.noise.base import Noise


@cache
def noises() -> Registry[type[Noise]]:
    """Return all models of noise by name."""
    return components(__name__, __path__, noise=Noise)
