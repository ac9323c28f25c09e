"""Where an audit cannot be trusted, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from imperfed.label_audit.audit_summary import AuditOverview, AuditSummary
from imperfed.report.words import many

FEW = 10
"""Sites with fewer rows are judged by the others."""
RENAMED = 0.5
"""The share of right labels below which a class may have been taken for another one."""
NAMED = 5
"""How many sites or classes a caution names."""
LEFT_ALONE = 0.03
"""The estimated noise below which a site is left alone without clean rows."""
NOTICED = 0.05
"""The estimated noise from which it may be underestimated in a way that matters."""


def cautions(summary: AuditSummary | AuditOverview, classes: Sequence[str], pooled: Tensor) -> Iterator[str]:
    """Yield why findings may be wrong; `pooled`: estimated rows by true and given class."""
    if summary.left_alone:
        doubtful = "The estimates cannot be trusted; look at the worst suspects before you believe them."
        yield f"{summary.support[0].upper()}{summary.support[1:]} (features: {summary.features}). {doubtful}"
    if not summary.clean_rows:
        yield from without_clean_rows(summary, classes, pooled)
    yield from few_rows(summary)


def few_rows(summary: AuditSummary | AuditOverview) -> Iterator[str]:
    """Yield which sites have too few rows to be judged by them."""
    if few := [site.site for site in summary.sites if site.rows < FEW]:
        them = "it" if len(few) == 1 else "them"
        yield f"{listed(few)}: fewer than {FEW} rows, so that what is said of {them} comes mostly from other sites."


def without_clean_rows(summary: AuditSummary | AuditOverview, classes: Sequence[str], pooled: Tensor) -> Iterator[str]:
    """Yield what only rows with true labels could show."""
    right, larger = pooled.diagonal(), pooled.sum(0).maximum(pooled.sum(1))
    doubtful = ((right < RENAMED * larger) & (larger >= 1)).nonzero().flatten().tolist()
    if doubtful:
        yield (
            f"{listed([classes[c] for c in doubtful])}: more than half of these labels seem to be wrong. Without "
            "trusted rows such a class may be taken for another one; have some of its rows checked."
        )
    if summary.noise >= NOTICED:
        yield (
            "There are no trusted rows (rows whose labels somebody has checked). Without them, mistakes that people "
            "make on difficult rows are underestimated: in our tests, 40 % wrong labels were estimated as 29 %."
        )
    quiet = [site.site for site in summary.sites if site.noise < LEFT_ALONE]
    if quiet and summary.noise * summary.rows >= 1:
        yield (
            f"{listed(quiet)}: less than {100 * LEFT_ALONE:g} % noise estimated; without trusted rows a repair leaves "
            "such sites alone."
        )


def listed(names: Sequence[str]) -> str:
    """Return a few names, and how many more there are."""
    more = f" and {many(len(names) - NAMED, 'other')}" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
