"""Every table and figure of the papers, and how far it is here, on a console or as JSON."""

from __future__ import annotations

import json
from collections import Counter

from rich.console import Console

from imperfed.cli.terminal_table import TableColumn, print_table
from imperfed.experiments.reproduction.standing import Standing, standings


def standings_table(console: Console, as_json: bool) -> None:
    """Print the standing of every table and figure."""
    found = list(standings())
    if as_json:
        print(json.dumps([one.plain() for one in found], indent=2))
        return
    columns = [
        TableColumn("name", [one.name for one in found], words=True),
        TableColumn("status", [shown(one) for one in found], words=True),
        TableColumn("runs", [f"{one.done}/{one.runs}" if one.runs else "" for one in found]),
        TableColumn("what it is", [one.title for one in found], words=True),
    ]
    print_table(console, columns)
    counts = Counter(one.status for one in found)
    console.print(f"{len(found)} tables and figures: {', '.join(f'{n} {status}' for status, n in counts.items())}.")
    console.print("Results that come with imperfed count; `imperfed reproduce NAME` makes a table's runs.")
    console.print("What stands for what, and what there are no data for: --json, or `imperfed show NAME`.")


def shown(one: Standing) -> str:
    """Return the status of a table, and what its missing runs need."""
    return f"{one.status}: needs {one.needs}" if one.needs else one.status
