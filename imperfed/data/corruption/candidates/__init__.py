"""Every `CandidateGenerator` defined in a file of this folder. Adding one needs no other edit."""

from __future__ import annotations

from functools import cache

from imperfed.core.registry import discover
from imperfed.data.corruption.candidates.base import CandidateGenerator


@cache
def candidate_generators() -> dict[str, type[CandidateGenerator]]:
    """Return all generators of candidate sets by name."""
    return discover(__name__, __path__, (CandidateGenerator,))
