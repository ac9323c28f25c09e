"""The table of a drill, on the terminal and on the page."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.drill.consortium import Seen

COLUMNS = ("fault", "before", "the coordinator sees", "the site sees", "rounds lost", "state lost")
RESULTS = Path(__file__).resolve().parents[1] / "results" / "drill.json"
BLOCK = re.compile(r"(<!-- drill -->\n).*?(<!-- end -->)", re.DOTALL)
LONGEST = 220
"""Characters of a cell on the page."""


def show(rows: Sequence[Seen]) -> None:
    """Print the table."""
    table = Table(*COLUMNS, show_lines=True)
    for row in rows:
        table.add_row(*row)
    Console(width=180, markup=False, highlight=False).print(table)


def keep(scene: str, rows: Sequence[Seen], seconds: float, counted: Mapping[str, int]) -> None:
    """Keep what was seen in a scene in place of what was seen there before."""
    known = stored()
    known[scene] = {"rows": [row._asdict() for row in rows], "seconds": round(seconds), "counted": dict(counted)}
    RESULTS.write_text(json.dumps(known, indent=1), encoding="utf-8")


def stored() -> dict[str, Any]:
    """Return what was seen so far, by scene."""
    known: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return known


def filled(page: str, scenes: Sequence[str]) -> str:
    """Return the page with the table of these scenes in place of its own."""
    known = stored()
    lines = [f"| {' | '.join(COLUMNS)} |", "| --- " * len(COLUMNS) + "|"]
    for scene in scenes:
        lines += [f"| {' | '.join(cell(row[name]) for name in Seen._fields)} |" for row in known[scene]["rows"]]
    return BLOCK.sub(lambda m: m[1] + "\n" + "\n".join(lines) + "\n\n" + m[2], page)


def cell(text: str) -> str:
    """Return a text as a cell: on one line, not too long, without what would end the cell or be read as a tag."""
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return " ".join(short.split()).replace("|", "\\|").replace("<", "&lt;").replace("10^12", "10<sup>12</sup>")
