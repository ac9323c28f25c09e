"""What a coordinator may know of an audit over real sites: figures from sums, and no label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace
from torch import Tensor

from imperfed.core.components import RepairVerdict
from imperfed.core.federation import Federation
from imperfed.label_audit.audit_summary import AuditOverview, OverviewSite
from imperfed.label_audit.cautions import cautions
from imperfed.label_audit.judging import clean_rows
from imperfed.label_audit.sentences import do_not_repair, per_cent, taken_for, would_change
from imperfed.label_audit.set_sentences import ADVICE, set_cautions, set_overview
from imperfed.repairs.features import resolved
from imperfed.repairs.posterior import PosteriorRepair
from imperfed.report.words import many
from imperfed.results.repaired_labels import mixed_up_in


def survey(
    repair: PosteriorRepair, federation: Federation, verdict: RepairVerdict, noise: Sequence[float], changes: list[int]
) -> AuditOverview:
    """Return the overview of an audit whose rows are elsewhere; `noise`, `changes`: what every site says of itself."""
    reports = zip(federation.sites, federation.sizes(), noise, changes, strict=True)
    rows, figures = federation.starts[-1], verdict.figures
    found = AuditOverview(
        data=federation.name,
        method=repair.name,
        features=resolved(repair.features, federation.x),
        clean_rows=clean_rows(repair, federation),
        classes=federation.classes,
        rows=rows,
        noise=figures["claimed"] if "claimed" in figures else weighted_mean(noise, federation.sizes()),
        changes=sum(changes),
        agreement=figures["agreement"],
        contradicted=figures.get("contradicted"),
        clear=figures["clear"],
        level=figures.get("level"),
        left_alone=verdict.alone,
        trusted=len(verdict.alone) < len(federation.sites),
        support=verdict.words,
        joint=() if verdict.joint is None else tuple(map(tuple, verdict.joint.tolist())),
        mixed_up=() if verdict.joint is None else mixed_up_in(verdict.joint, rows, federation.classes),
        findings=(),
        advice="",
        cautions=(),
        sites=tuple(OverviewSite(*site) for site in reports),
        sets=verdict.joint is None,
    )
    return sets_in_words(found) if verdict.joint is None else in_words(found, rows * verdict.joint)


def weighted_mean(shares: Sequence[float], rows: Sequence[int]) -> float:
    """Return the mean of the sites' shares, each weighed by its rows."""
    return sum(share * n for share, n in zip(shares, rows, strict=True)) / max(1, sum(rows))


def sets_in_words(found: AuditOverview) -> AuditOverview:
    """Return the overview of candidate sets with its sentences."""
    return replace(found, findings=tuple(set_overview(found)), advice=ADVICE, cautions=tuple(set_cautions(found)))


def in_words(found: AuditOverview, pooled: Tensor) -> AuditOverview:
    """Return the overview with its sentences; `pooled`: estimated rows by true and given class."""
    careful = tuple(cautions(found, found.classes, pooled))
    return replace(found, findings=tuple(sentences(found)), advice=advised(found), cautions=careful)


def sentences(found: AuditOverview) -> Iterator[str]:
    """Yield the most important findings."""
    yield f"An estimated {per_cent(found.noise)} of {many(found.rows, 'label')} are wrong."
    for site in sorted(found.sites, key=lambda site: -site.noise):
        yield f"{site.site}: {per_cent(site.noise)} of {many(site.rows, 'label')} wrong."
    if pairs := taken_for(found.mixed_up, "all"):
        yield f"All sites together: {pairs}."


def advised(found: AuditOverview) -> str:
    """Say whether repairs at the sites would help."""
    if not found.trusted:
        return do_not_repair(found.support, found.features)
    if not found.changes:
        return "A repair would change nothing."
    return f"{would_change([site.changes for site in found.sites])}. Each site decides whether it writes them."
