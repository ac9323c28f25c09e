"""The page about an audit, `audit.html`: one file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from imperfed.label_audit.audit_summary import AuditedSite, AuditOverview, AuditSummary, LabelNoise
from imperfed.label_audit.sentences import per_cent, site_findings
from imperfed.report import plots, rendered
from imperfed.report.content import Tile
from imperfed.report.sections import Picture
from imperfed.report.words import count, many

OPEN = 3
"""How many sites' lists of suspects are open, the noisiest ones."""

Thumbnails = Mapping[str, Mapping[str, str]]
"""Pictures of suspects as data URIs, by site and id."""


def page(summary: AuditSummary, thumbnails: Thumbnails) -> str:
    """Return the text of the page."""
    noisiest = sorted(summary.sites, key=lambda site: -site.noise)
    opened = {site.site for site in noisiest[:OPEN] if site.worst}
    return rendered(
        "imperfed.label_audit",
        "audit.html",
        {
            "title": f"Labels of {summary.data}",
            "about": about(summary),
            "tiles": tiles(summary),
            "summary": summary,
            "sites": noisiest,
            "opened": opened,
            "pictures": pictures(summary),
            "in_words": {site.site: " ".join(site_findings(site)) for site in summary.sites},
            "noisy": {site.site: noisy_labels(site) for site in summary.sites},
            "thumbnails": thumbnails,
            "per_cent": per_cent,
            "count": count,
            "many": many,
        },
    )


def about(summary: AuditSummary | AuditOverview) -> list[str]:
    """Describe the audit in a few words each."""
    clean = f"{many(summary.clean_rows, 'trusted row')} at the server" if summary.clean_rows else "no trusted rows"
    return [
        many(len(summary.sites), "site"),
        many(summary.rows, "label"),
        many(len(summary.classes), "class", "classes"),
        f"features {summary.features}",
        clean,
    ]


def tiles(summary: AuditSummary) -> list[Tile]:
    """Return the headline figures."""
    shown = [
        Tile("wrong labels, estimated", per_cent(summary.noise), f"of {many(summary.rows, 'label')}"),
        Tile("suspects", count(summary.suspects), "another label is more probable"),
        Tile("a repair would change", count(summary.changes), f"then {per_cent(summary.noise_after)} wrong, estimated"),
    ]
    if len(summary.sites) > 1:
        shown.append(noisiest_tile(summary))
    if summary.truth is not None and (score := summary.truth.suspects.average_precision) is not None:
        wrong = per_cent(summary.truth.suspects.wrong)
        shown.append(Tile("average precision", f"{score:.3f}", f"of the ranking; {wrong} wrong in truth"))
    return shown


def noisiest_tile(summary: AuditSummary | AuditOverview) -> Tile:
    """Return which site has the largest share of wrong labels."""
    share, site, rows = max((site.noise, site.site, site.rows) for site in summary.sites)
    return Tile("noisiest site", per_cent(share), f"{site}, n = {count(rows)}")


def noisy_labels(site: AuditedSite) -> list[LabelNoise]:
    """Return the labels that a site has or misses."""
    return [label for label in site.labels if label.given or label.missed]


def pictures(summary: AuditSummary) -> list[Picture]:
    """Draw the share of wrong labels by site and label."""
    shares = [[round(1000 * (label.wrong or 0.0)) for label in site.labels] for site in summary.sites]
    svg = plots.heat_map(
        "noise",
        "estimated wrong labels per thousand, by site and label",
        [list(row) for row in zip(*shares, strict=True)],
        ("given label", summary.classes),
        ("", [site.site for site in summary.sites]),
    )
    return [
        Picture(
            svg, "Of a thousand rows that have this label at this site, how many are estimated to be of another class."
        )
    ]
