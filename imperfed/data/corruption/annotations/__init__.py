"""Every `AnnotationPattern` defined in a file of this folder, and those of plug-ins. Adding one needs no other edit."""

from __future__ import annotations

from functools import cache

from imperfed.core.registry import Registry, components
from imperfed.data.corruption.annotations.base import AnnotationPattern


@cache
def annotation_patterns() -> Registry[type[AnnotationPattern]]:
    """Return all annotation patterns by name."""
    return components(__name__, __path__, annotations=AnnotationPattern)
