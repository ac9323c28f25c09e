"""Every `CandidateGenerator` in a file of this folder, and those of plug-ins. Adding one needs no other edit."""

from __future__ import annotations

from functools import cache

from imperfed.core.registry import Registry, components
from imperfed.data.corruption.candidates.base import CandidateGenerator


@cache
def candidate_generators() -> Registry[type[CandidateGenerator]]:
    """Return all generators of candidate sets by name."""
    return components(__name__, __path__, candidates=CandidateGenerator)
