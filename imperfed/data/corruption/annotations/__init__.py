"""Every `AnnotationPattern` defined in a file of this folder. Adding one needs no other edit."""

from __future__ import annotations

from functools import cache

from imperfed.core.registry import discover
from imperfed.data.corruption.annotations.base import AnnotationPattern


@cache
def annotation_patterns() -> dict[str, type[AnnotationPattern]]:
    """Return all annotation patterns by name."""
    return discover(__name__, __path__, (AnnotationPattern,))
