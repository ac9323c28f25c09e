"""The findings of an audit in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from imperfed.label_audit.audit_summary import AuditedSite, AuditSummary, KnownTruth
from imperfed.report.words import count, many
from imperfed.results.repair_summary import MixUp

PAIRS = 3
"""How many mix-ups of classes are named for a site."""
LEAST = 0.02
"""The share of a class's rows from which a mix-up is named."""
ALIKE, UNLIKE = 0.05, 0.1
"""Shares of labels given otherwise than by all sites: up to the first, sites agree; from the second, one stands out."""


def per_cent(share: float) -> str:
    """Return an estimated share in whole per cent, or with one decimal where it is small."""
    return f"{100 * share:.{1 if share < 0.0995 else 0}f}\N{NO-BREAK SPACE}%"


def findings(summary: AuditSummary) -> Iterator[str]:
    """Yield the most important findings."""
    yield (
        f"An estimated {per_cent(summary.noise)} of {many(summary.rows, 'label')} are wrong; for "
        f"{many(summary.suspects, 'row')} another label is more probable than the given one."
    )
    for site in sorted(summary.sites, key=lambda site: -site.noise):
        yield from site_findings(site)
    yield agreement(summary)
    if summary.truth is not None:
        yield rightness(summary.truth)


def site_findings(site: AuditedSite) -> Iterator[str]:
    """Yield what a site mixes up, one sentence if it does."""
    if (pairs := taken_for(site.mixed_up, "its")) and site.suspects:
        yield f"{site.site}: {per_cent(site.noise)} wrong; {pairs}."


def taken_for(mixed_up: Sequence[MixUp], whose: str) -> str:
    """Return which classes are taken for which others; empty where none is, by and large."""
    return "; ".join(
        f"{one.true} taken for {one.given} in {per_cent(one.share)} of {whose} {rows_of(one.true)}"
        for one in [one for one in mixed_up if one.share >= LEAST][:PAIRS]
    )


def rows_of(label: str) -> str:
    """Return what rows of a class are called: 7s, wren rows."""
    return f"{label}s" if label.isdecimal() else f"{label} rows"


def agreement(summary: AuditSummary) -> str:
    """Say how far the sites' mistakes are alike."""
    unlike = {site.site: site.unlike or 0.0 for site in summary.sites}
    if summary.others:
        ((own, share),) = unlike.items()
        everyone = f"all {summary.others + 1} sites together"
        return f"{own} gives {per_cent(share)} of its labels otherwise than {everyone}."
    if len(summary.sites) == 1:
        return "There is one site only, so that no sites can be compared."
    apart = sorted((site for site in unlike if unlike[site] >= UNLIKE), key=lambda site: -unlike[site])
    if not apart:
        most = max(unlike.values())
        agree = "The sites agree" if most <= ALIKE else "The sites agree roughly"
        return (
            f"{agree} on what a label means: none gives more than {per_cent(most)} of its labels otherwise than all "
            "sites together."
        )
    named = ", ".join(f"{site} ({per_cent(unlike[site])})" for site in apart[:PAIRS])
    more = f" and {many(len(apart) - PAIRS, 'further site')}" if len(apart) > PAIRS else ""
    return f"Labelled otherwise than by all sites together, in shares of their labels: {named}{more}."


def rightness(truth: KnownTruth, sets: bool = False) -> str:
    """Compare suspicions with the truth; `sets`: whether the labels are candidate sets, which may miss it."""
    figures = truth.suspects
    if not figures.wrong:
        return f"Against the truth: {'no set misses it' if sets else 'no label is wrong'}."
    labels, wrong = ("sets", "miss it") if sets else ("labels", "are wrong")
    right = "there are no suspects"
    if figures.precision is not None:
        right = f"{per_cent(figures.precision)} of the suspects {wrong}"
    return (
        f"Against the truth: {per_cent(figures.wrong)} of the {labels} {wrong}, {per_cent(figures.recall or 0.0)} of "
        f"these are suspects, and {right}; average precision of the ranking {figures.average_precision or 0.0:.3f}."
    )


def advice(summary: AuditSummary) -> str:
    """Say whether a repair would help."""
    if not summary.trusted:
        return do_not_repair(summary.support, summary.features)
    if not summary.changes:
        return "A repair would change nothing."
    return (
        f"{would_change([site.changes for site in summary.sites])}; by its own estimate, "
        f"{per_cent(summary.noise_after)} instead of {per_cent(summary.noise)} are then wrong."
    )


def do_not_repair(support: str, features: str) -> str:
    """Advise against a repair that the features do not support."""
    return (
        f"Do not repair: {support}. Choose other features than {features} (--features) that tell the classes apart "
        "better."
    )


def would_change(changes: Sequence[int]) -> str:
    """Say how many labels a repair would change, and at how many sites; `changes`: of every site."""
    at = sum(number > 0 for number in changes)
    where = f" at {count(at)} of {count(len(changes))} sites" if len(changes) > 1 else ""
    return f"A repair would change {many(sum(changes), 'label')}{where}"
