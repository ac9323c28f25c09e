"""A sweep on a console."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from imperfed.cli.terminal_table import TableColumn, print_path, print_table, print_wrapped
from imperfed.report.compared_runs import RESULTS
from imperfed.report.comparison_page import PAGE, interval_in_words
from imperfed.report.sweep_page import in_words, verdict
from imperfed.report.words import many, per_cent

SHOWN = 12
"""Most combinations in the table; the page has all."""


def sweep_table(console: Console, results: Mapping[str, Any], folder: Path) -> None:
    """Print the best combinations, the chosen one in bold, its test figure, and what was written."""
    ranked = sorted(results["cells"], key=lambda cell: -1.0 if cell["mean"] is None else cell["mean"], reverse=True)
    shown = ranked[:SHOWN]
    keys = list(results["grid"])
    table = [
        *(TableColumn(key, [cell["settings"][key] for cell in shown]) for key in keys),
        TableColumn(f"{results['figure']}, held out", [per_cent(cell["mean"]) for cell in shown]),
        TableColumn("against the best", [said(number, cell) for number, cell in enumerate(shown)], words=True),
    ]
    heading = f"{results['method']}, {many(len(ranked), 'combination')}, {many(len(results['seeds']), 'seed')}"
    print_table(console, table, heading, [0])
    if len(ranked) > len(shown):
        print_wrapped(console, f"and {len(ranked) - len(shown)} more, which the page shows")
    print_wrapped(console, f"chosen: {in_words(results['chosen']['settings'])}", style="bold")
    chosen = results["chosen"]
    if chosen["values"]:
        over = interval_in_words(chosen["interval"]) or many(len(chosen["values"]), "seed")
        print_wrapped(console, f"on test rows: {chosen['figure']} {per_cent(fmean(chosen['values']))} ({over})")
    console.print("Written:")
    for name in (PAGE, RESULTS):
        print_path(console, folder / name)
    if runs := sorted(path.parent for path in folder.glob("*/summary.json")):
        console.print("and a folder for each run of the chosen settings, with report.html and models:")
        for run in runs:
            print_path(console, run)


def said(number: int, cell: Mapping[str, Any]) -> str:
    """Return what is said of a combination beside its score."""
    failure = next((trial["failure"] for trial in cell["trials"] if trial["failure"]), "")
    return "chosen" if number == 0 else "failed" if failure else verdict(cell)
