"""Every `Noise` defined in a file of this folder: how labels become wrong. Adding one needs no other edit."""

from __future__ import annotations

from functools import cache

from imperfed.core.registry import discover
from imperfed.data.corruption.noise.base import Noise


@cache
def noises() -> dict[str, type[Noise]]:
    """Return all models of noise by name."""
    return discover(__name__, __path__, (Noise,))
