"""What a site is told at the end: which round is kept, why the run ended, and whether the site failed throughout."""

from __future__ import annotations

from imperfed.core.labels.validity import Validity
from imperfed.evaluation.model_figures import figure
from imperfed.flower.messages.payload import Payload, Word
from imperfed.results.summary import ValidationSummary

NEVER = "never answered"
"""The word under which a site is told why it failed in every round."""


def never_words(why: str) -> dict[str, Word]:
    """Return what a site is told that failed in every round, and why in the last one; nothing to any other."""
    return {NEVER: why} if why else {}


def ending_words(ending: ValidationSummary | None) -> dict[str, Word]:
    """Return the ending as words, without the figures of the other sites; none where no site holds rows out."""
    if ending is None:
        return {}
    return {"best round": ending.round, "best kept": int(ending.kept), "ended early": int(ending.early)}


def ending_of(payload: Payload, name: str, rows: int, own: Validity) -> ValidationSummary | None:
    """Return the ending as a site sees it: with its own figure, of this name, on this many rows of its own."""
    if "best round" not in payload.words:
        return None
    return ValidationSummary(
        figure=name,
        round=payload.number("best round"),
        score=figure(own.score),
        rows=rows,
        kept=bool(payload.number("best kept")),
        early=bool(payload.number("ended early")),
    )
