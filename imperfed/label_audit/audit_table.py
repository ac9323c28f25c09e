"""The findings of an audit on a console: a short table and the sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from imperfed.cli.terminal_table import TableColumn, print_path, print_table, print_wrapped
from imperfed.label_audit.audit_summary import AuditedSite, AuditOverview, AuditSummary
from imperfed.label_audit.sentences import per_cent
from imperfed.report.words import count, many

MOST_SITES = 20
"""The most sites that are listed; of more, the noisiest."""
MOST_SENTENCES = 8
"""The most findings that are printed; the page has all."""


def print_audit(console: Console, summary: AuditSummary, folder: Path) -> None:
    """Print the figures of every site, the findings, and where everything was written."""
    console.print(title(summary), style="bold")
    print_table(console, site_columns(summary), caption(summary))
    if len(summary.sites) > MOST_SITES:
        console.print(f"the {MOST_SITES} noisiest of {len(summary.sites)} sites")
    print_sentences(console, summary)
    print_written(console, folder, ("audit.html", "audit.json", "labels"))


def print_overview(console: Console, found: AuditOverview, folder: Path) -> None:
    """Print what a coordinator may know of an audit over real sites."""
    console.print(title(found), style="bold")
    sites = sorted(found.sites, key=lambda site: -site.noise)[:MOST_SITES]
    columns = [
        TableColumn("site", [site.site for site in sites], words=True),
        TableColumn("rows", [count(site.rows) for site in sites]),
        TableColumn(estimated(found), [per_cent(site.noise) for site in sites]),
        *([] if found.sets else [TableColumn("would change", [count(site.changes) for site in sites])]),
    ]
    print_table(console, columns, caption(found))
    print_sentences(console, found)
    console.print("each site has its own page and its labels in its state folder")
    print_written(console, folder, ("audit.html", "audit.json"))


def title(summary: AuditSummary | AuditOverview) -> str:
    """Return what was judged, in a line."""
    labels = many(summary.rows, "candidate set" if summary.sets else "label")
    return f"{summary.data}: {many(len(summary.sites), 'site')}, {labels}"


def print_sentences(console: Console, summary: AuditSummary | AuditOverview) -> None:
    """Print findings, advice and cautions."""
    for sentence in (*summary.findings[:MOST_SENTENCES], summary.advice):
        print_wrapped(console, sentence)
    if summary.cautions:
        console.print("be careful:", style="bold")
    for sentence in summary.cautions:
        print_wrapped(console, sentence, "  ")


def print_written(console: Console, folder: Path, names: Sequence[str]) -> None:
    """Print where everything was written."""
    console.print("written:")
    for name in names:
        print_path(console, folder / name)


def caption(summary: AuditSummary | AuditOverview) -> str:
    """Return what a table of sites is about."""
    what = "candidate sets that miss the true class" if summary.sets else "wrong labels"
    return f"share and number of {what} at each site"


def estimated(summary: AuditSummary | AuditOverview) -> str:
    """Return the heading of the estimated shares."""
    return "missing it, estimated" if summary.sets else "wrong, estimated"


def site_columns(summary: AuditSummary) -> list[TableColumn]:
    """Return the columns of a table of sites, the noisiest first."""
    sites = sorted(summary.sites, key=lambda site: -site.noise)[:MOST_SITES]
    truth = []
    if summary.truth:
        cells = [per_cent(site.truth.suspects.wrong) if site.truth else "" for site in sites]
        truth = [TableColumn("wrong in truth", cells)]
    return [
        TableColumn("site", [site.site for site in sites], words=True),
        TableColumn("rows", [count(site.rows) for site in sites]),
        TableColumn(estimated(summary), [per_cent(site.noise) for site in sites]),
        *truth,
        TableColumn("suspects", [count(site.suspects) for site in sites]),
        *([] if summary.sets else repair_columns(sites)),
    ]


def repair_columns(sites: Sequence[AuditedSite]) -> list[TableColumn]:
    """Return the columns about labels of one class, which a repair may change."""
    return [
        TableColumn("would change", [count(site.changes) for site in sites]),
        TableColumn("unlike all sites", [per_cent(site.unlike or 0.0) for site in sites]),
    ]
