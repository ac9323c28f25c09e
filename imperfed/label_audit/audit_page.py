"""The page about an audit, `audit.html`: one file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from imperfed.label_audit.audit_summary import AuditOverview, AuditSummary
from imperfed.label_audit.sentences import per_cent, site_findings
from imperfed.label_audit.set_sentences import missed_at
from imperfed.report import plots, rendered
from imperfed.report.content import Tile
from imperfed.report.sections import Picture
from imperfed.report.words import count, many

OPEN = 3
"""How many sites' lists of suspects are open, the noisiest ones."""

LABELS_PICTURE = (
    "estimated wrong labels per thousand, by site and label",
    "given label",
    "Of a thousand rows that have this label at this site, how many are estimated to be of another class; blank: none.",
)
SETS_PICTURE = (
    "estimated sets without the true class per thousand, by site and class",
    "true class",
    "Of a thousand rows of this class at this site, how many are estimated to have a set without it; blank: none.",
)
"""Title, vertical axis and caption."""

Thumbnails = Mapping[str, Mapping[str, str]]
"""Pictures of suspects as data URIs, by site and id."""


def page(summary: AuditSummary, thumbnails: Thumbnails) -> str:
    """Return the text of the page."""
    noisiest = sorted(summary.sites, key=lambda site: -site.noise)
    opened = {site.site for site in noisiest[:OPEN] if site.worst}
    in_words = missed_at if summary.sets else site_findings
    return rendered(
        "imperfed.label_audit",
        "audit.html",
        {
            "title": f"Labels of {summary.data}",
            "contents": [*headings(summary), "The most suspicious labels"],
            "about": about(summary),
            "tiles": tiles(summary),
            "summary": summary,
            "sites": noisiest,
            "opened": opened,
            "pictures": pictures(summary),
            "in_words": {site.site: " ".join(in_words(site)) for site in summary.sites},
            "other": other(summary),
            "thumbnails": thumbnails,
            "per_cent": per_cent,
            "count": count,
            "many": many,
        },
    )


def headings(summary: AuditSummary | AuditOverview) -> list[str]:
    """Return the headings that the pages of sites and coordinator have in common."""
    return [*(["Where to be careful"] if summary.cautions else []), "Findings", "Sites"]


def about(summary: AuditSummary | AuditOverview) -> list[str]:
    """Describe the audit in a few words each."""
    clean = f"{many(summary.clean_rows, 'trusted row')} at the server" if summary.clean_rows else "no trusted rows"
    return [
        many(len(summary.sites), "site"),
        many(summary.rows, "candidate set" if summary.sets else "label"),
        many(len(summary.classes), "class", "classes"),
        f"features {summary.features}",
        *([] if summary.sets else [clean]),
    ]


def tiles(summary: AuditSummary) -> list[Tile]:
    """Return the headline figures."""
    shown = [
        wrong_tile(summary),
        Tile("suspects", count(summary.suspects), f"{other(summary)} is more probable"),
    ]
    if not summary.sets:
        then = f"then {per_cent(summary.noise_after)} wrong, estimated"
        shown.append(Tile("a repair would change", count(summary.changes), then))
    if len(summary.sites) > 1 and any(round(site.noise, 3) for site in summary.sites):
        shown.append(noisiest_tile(summary))
    if summary.truth is not None and (score := summary.truth.suspects.average_precision) is not None:
        wrong = per_cent(summary.truth.suspects.wrong)
        shown.append(Tile("average precision", f"{score:.3f}", f"of the ranking; {wrong} wrong in truth"))
    return shown


def wrong_tile(summary: AuditSummary | AuditOverview) -> Tile:
    """Return the share of labels that are wrong, or of sets that miss the true class."""
    if summary.sets:
        return Tile("sets without the true class", per_cent(summary.noise), f"estimated, of {count(summary.rows)}")
    return Tile("wrong labels, estimated", per_cent(summary.noise), f"of {many(summary.rows, 'label')}")


def other(summary: AuditSummary) -> str:
    """Return what a suspect is suspected to be."""
    return "a class outside the set" if summary.sets else "another label"


def noisiest_tile(summary: AuditSummary | AuditOverview) -> Tile:
    """Return which site has the largest share of wrong labels."""
    share, site, rows = max((site.noise, site.site, site.rows) for site in summary.sites)
    return Tile("noisiest site", per_cent(share), f"{site}, n = {count(rows)}")


def pictures(summary: AuditSummary) -> list[Picture]:
    """Draw the share of wrong labels by site and label, or of sets that miss the true class by site and class.

    Where there are none, nothing is drawn.
    """
    title, axis, caption = SETS_PICTURE if summary.sets else LABELS_PICTURE
    wrong = [[label.missed if summary.sets else label.wrong for label in site.labels] for site in summary.sites]
    rows = [[round(1000 * (share or 0.0)) for share in row] for row in zip(*wrong, strict=True)]
    if not any(map(any, rows)):
        return []
    svg = plots.heat_map(
        "noise",
        title,
        rows,
        (axis, summary.classes),
        ("", [site.site for site in summary.sites]),
    )
    return [Picture(svg, caption)]
