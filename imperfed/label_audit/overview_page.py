"""The page of a coordinator about an audit over real sites: figures, and no row."""

from __future__ import annotations

from imperfed.label_audit.audit_page import about, headings, noisiest_tile, wrong_tile
from imperfed.label_audit.audit_summary import AuditOverview
from imperfed.label_audit.sentences import per_cent
from imperfed.report import plots, rendered
from imperfed.report.content import Tile
from imperfed.report.sections import Picture
from imperfed.report.words import count


def overview_page(found: AuditOverview) -> str:
    """Return the text of the page."""
    return rendered(
        "imperfed.label_audit",
        "overview.html",
        {
            "title": f"Labels of {found.data}",
            "contents": headings(found),
            "about": about(found),
            "tiles": overview_tiles(found),
            "summary": found,
            "sites": sorted(found.sites, key=lambda site: -site.noise),
            "pictures": [] if found.sets else [confusion(found)],
            "per_cent": per_cent,
            "count": count,
        },
    )


def overview_tiles(found: AuditOverview) -> list[Tile]:
    """Return the headline figures."""
    changes = Tile("a repair would change", count(found.changes), "labels, each at its own site")
    return [wrong_tile(found), *([] if found.sets else [changes]), noisiest_tile(found)]


def confusion(found: AuditOverview) -> Picture:
    """Draw which classes are taken for which, over all sites; right labels are left blank."""
    shares = [
        [0 if g == y else round(1000 * share / max(sum(row), 1e-12)) for g, share in enumerate(row)]
        for y, row in enumerate(found.joint)
    ]
    svg = plots.heat_map(
        "mixed-up",
        "estimated wrong labels per thousand rows of a class, over all sites",
        shares,
        ("class", found.classes),
        ("label", found.classes),
    )
    return Picture(svg, "Of a thousand rows of this class, over all sites, how many are estimated to have this label.")
