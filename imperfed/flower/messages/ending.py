"""What a site is told at the end of a run whose sites hold rows out: which round is kept, and why the run ended."""

from __future__ import annotations

from imperfed.core.labels.validity import Validity
from imperfed.evaluation.evaluator import figure
from imperfed.flower.messages.payload import Payload, Word
from imperfed.results.summary import ValidationSummary


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
