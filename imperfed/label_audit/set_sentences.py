"""The findings about candidate sets in words, and where they cannot be trusted."""

from __future__ import annotations

from collections.abc import Iterator

from imperfed.label_audit.audit_summary import AuditedSite, AuditOverview, AuditSummary
from imperfed.label_audit.cautions import few_rows
from imperfed.label_audit.sentences import LEAST, PAIRS, per_cent, rightness, rows_of
from imperfed.report.words import count, many

ADVICE = (
    "Nothing is changed: candidate sets are ranked, not repaired. Look at the first ones of every site, and add the "
    "class that a set misses."
)


def findings_of_sets(summary: AuditSummary) -> Iterator[str]:
    """Yield the most important findings."""
    yield (
        f"An estimated {per_cent(summary.noise)} of {many(summary.rows, 'candidate set')} miss the true class; for "
        f"{many(summary.suspects, 'row')} a class outside the set is the most probable one."
    )
    for site in sorted(summary.sites, key=lambda site: -site.noise):
        yield from missed_at(site)
    if summary.truth is not None:
        yield rightness(summary.truth, sets=True)


def missed_at(site: AuditedSite) -> Iterator[str]:
    """Yield which classes a site's sets miss, one sentence if there are any."""
    often = [label for label in site.labels if (label.missed or 0) >= LEAST]
    if not site.suspects or not often:
        return
    named = sorted(often, key=lambda label: -(label.missed or 0))[:PAIRS]
    classes = "; ".join(f"{per_cent(one.missed or 0)} of its {rows_of(one.label)} lack {one.label}" for one in named)
    yield f"{site.site}: {per_cent(site.noise)} of its sets miss the true class; {classes}."


def set_overview(found: AuditOverview) -> Iterator[str]:
    """Yield the most important findings of an audit over real sites."""
    yield f"An estimated {per_cent(found.noise)} of {many(found.rows, 'candidate set')} miss the true class."
    for site in sorted(found.sites, key=lambda site: -site.noise):
        yield f"{site.site}: {per_cent(site.noise)} of {count(site.rows)} sets miss it."


def set_cautions(summary: AuditSummary | AuditOverview) -> Iterator[str]:
    """Yield why findings may be wrong."""
    if summary.left_alone:
        yield (
            f"{summary.support[0].upper()}{summary.support[1:]} (features: {summary.features}): the features hardly "
            "tell the classes apart, so that neither estimates nor ranking say much. Choose others with --features."
        )
    yield (
        "The share of sets that miss the true class is an estimate from the features. The worse they tell the classes "
        "apart, the more it is too low; trust the order of the rows more than the share."
    )
    yield from few_rows(summary)
