"""The findings of an audit on a console: a short table and the sentences."""

from __future__ import annotations

import textwrap
from pathlib import Path

from rich.console import Console
from rich.table import Table

from imperfed.label_audit.audit_summary import AuditSummary
from imperfed.label_audit.sentences import per_cent
from imperfed.report.words import count, many

WIDTH = 100
MOST_SITES = 20
"""The most sites that are listed; of more, the noisiest."""
MOST_SENTENCES = 8
"""The most findings that are printed; the page has all."""


def print_audit(console: Console, summary: AuditSummary, folder: Path) -> None:
    """Print the figures of every site, the findings, and where everything was written."""
    console.print(f"{summary.data}: {many(len(summary.sites), 'site')}, {many(summary.rows, 'label')}", style="bold")
    console.print(site_table(summary))
    if len(summary.sites) > MOST_SITES:
        console.print(f"the {MOST_SITES} noisiest of {len(summary.sites)} sites")
    for sentence in (*summary.findings[:MOST_SENTENCES], summary.advice):
        print_wrapped(console, sentence)
    if summary.cautions:
        console.print("be careful:", style="bold")
    for sentence in summary.cautions:
        print_wrapped(console, sentence, "  ")
    console.print("written:")
    for name in ("audit.html", "audit.json", "labels"):
        console.print(f"  {folder / name}")


def site_table(summary: AuditSummary) -> Table:
    """Return one row per site, the noisiest first."""
    table = Table()
    truth = ("wrong in truth",) if summary.truth else ()
    for title in ("site", "rows", "wrong, estimated", *truth, "suspects", "would change", "unlike all sites"):
        table.add_column(title, justify="left" if title == "site" else "right")
    for site in sorted(summary.sites, key=lambda site: -site.noise)[:MOST_SITES]:
        known = (per_cent(site.truth.suspects.wrong),) if site.truth else ()
        counts = count(site.suspects), count(site.changes)
        table.add_row(site.site, count(site.rows), per_cent(site.noise), *known, *counts, per_cent(site.unlike))
    return table


def print_wrapped(console: Console, sentence: str, indent: str = "") -> None:
    """Print a sentence in lines that fit."""
    for line in textwrap.wrap(sentence, WIDTH, initial_indent=indent, subsequent_indent=indent + "  "):
        console.print(line)
