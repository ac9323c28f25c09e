"""The findings about candidate sets in words, and where they cannot be trusted."""

from __future__ import annotations

from collections.abc import Iterator

from imperfed.label_audit.audit_summary import AuditedSite, AuditOverview, AuditSummary, KnownTruth
from imperfed.label_audit.cautions import few_rows
from imperfed.label_audit.sentences import LEAST, PAIRS, per_cent, rows_of
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
        yield rightness_of_sets(summary.truth)


def missed_at(site: AuditedSite) -> Iterator[str]:
    """Yield which classes a site's sets miss, one sentence if there are any."""
    often = [label for label in site.labels if (label.missed or 0) >= LEAST]
    if not site.suspects or not often:
        return
    named = sorted(often, key=lambda label: -(label.missed or 0))[:PAIRS]
    classes = "; ".join(f"{per_cent(one.missed or 0)} of its {rows_of(one.label)} lack {one.label}" for one in named)
    yield f"{site.site}: {per_cent(site.noise)} of its sets miss the true class; {classes}."


def rightness_of_sets(truth: KnownTruth) -> str:
    """Compare suspicions with the truth."""
    figures = truth.suspects
    if not figures.wrong:
        return "Against the truth: no set misses it."
    right = "there are no suspects"
    if figures.precision is not None:
        right = f"{per_cent(figures.precision)} of the suspects do"
    return (
        f"Against the truth: {per_cent(figures.wrong)} of the sets miss it, {per_cent(figures.recall or 0.0)} of these "
        f"are suspects, and {right}; average precision of the ranking {figures.average_precision or 0.0:.3f}."
    )


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
