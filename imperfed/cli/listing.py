"""One list of the catalogue on a console, from the cache: nothing heavy is imported."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from imperfed.cli.catalogue_cache import read_catalogue
from imperfed.core.cache import cache_folder
from imperfed.core.errors import unknown

COLUMNS = {"datasets": ("name", "present", "about"), "studies": ("name", "table", "datasets")}
"""The columns of the lists whose entries hold more than a table can show."""


def listing(what: str, as_json: bool, console: Console) -> None:
    """Print one part of the catalogue."""
    catalogue = read_catalogue()
    lists = catalogue.lists
    if what not in lists:
        raise unknown("list", what, lists)
    entries = list(map(with_presence, lists[what])) if what == "datasets" else lists[what]
    for reason in catalogue.unusable.get(what, ()):
        print(f"warning: {reason}", file=sys.stderr)
    if as_json:
        print(json.dumps(entries, indent=2))
        return
    table = Table()
    columns = COLUMNS.get(what) or tuple(entries[0] if entries else ("name", "about"))
    for column in columns:
        table.add_column(column, overflow="fold")
    for entry in entries:
        table.add_row(*(str(entry[column]) for column in columns))
    console.print(table)
    if what == "datasets":
        console.print(f"Looked for in {data_folder()} (set IMPERFED_DATA to look elsewhere).")
        for entry in entries:
            if entry["present"] == "no":
                console.print(
                    f"\n{entry['name']} is missing. It comes from {entry['origin']}\n{checksums(entry['files'])}"
                )


def with_presence(dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dataset's entry with whether its files are in the data folder, which no cache can know."""
    folder = data_folder()
    present = all(any((folder / path).exists() for path in group) for group in dataset["needs"])
    return {
        "name": dataset["name"],
        "present": "yes" if present else "no",
        "about": dataset["about"],
        "looked for in": str(folder) if dataset["files"] else "bundled",
        "files": dataset["files"],
        "origin": dataset["origin"],
    }


def data_folder() -> Path:
    """Return the data folder as `imperfed.data.source` does, which imports torch."""
    chosen = os.environ.get("IMPERFED_DATA")
    return Path(chosen).expanduser() if chosen else cache_folder()


def checksums(files: Mapping[str, str]) -> str:
    """Return a dataset's files, each with the SHA-256 of its contents, unpacked where it is gzipped."""
    return "\n".join(f"  {path}  sha256 {digest}" for path, digest in files.items()) or "none"
