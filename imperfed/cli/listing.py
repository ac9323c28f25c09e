"""A list of the catalogue, or one entry in full, on a console; from the cache, so that nothing heavy is imported."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from imperfed.cli.catalogue_cache import read_catalogue
from imperfed.cli.terminal_table import TableColumn, print_table
from imperfed.core.errors import UsageError, unknown
from imperfed.data.stored_files import data_folder, differing

COLUMNS = {
    "algorithms": ("name", "learns from", "about"),
    "datasets": ("name", "present", "about"),
    "examples": ("name", "labels", "about"),
    "studies": ("name", "about", "columns"),
}
"""The columns of the lists whose entries hold more than a table can show."""
METHODS = {"algorithm": "algorithms", "objective": "objectives: local losses, as NAME (under fedavg) or ALGORITHM+NAME"}

BESIDE = (
    "SLEEC, FedALC's reference, is not among them: it predicts from the training rows' own labels, which may leave no "
    "site. In a checkout: python -m benchmarks.sleec."
)
"""What the papers compare with that cannot be an algorithm here."""


def listing(what: str, as_json: bool, console: Console) -> None:
    """Print one part of the catalogue."""
    catalogue = read_catalogue()
    lists = catalogue.lists
    if what not in lists:
        raise unknown("list", what, lists)
    entries = list(map(with_presence, lists[what])) if what == "datasets" else lists[what]
    unusable = catalogue.unusable.get(what, {})
    if as_json:
        # First, so that an entry of the same name that can be used is what a reader by name ends up with.
        print(json.dumps([*({"name": n, "unusable": why} for n, why in unusable.items()), *entries], indent=2))
        return
    for reason in unusable.values():
        print(f"warning: {reason}", file=sys.stderr)
    for title, part in parts_of(what, entries):
        columns = COLUMNS.get(what) or tuple(part[0] if part else ("name", "about"))
        print_table(console, [TableColumn(x, [str(entry[x]) for entry in part], words=True) for x in columns], title)
    if what == "algorithms":
        console.print(BESIDE)
    if what == "datasets":
        console.print(f"Looked for in {data_folder()} (set IMPERFED_DATA to look elsewhere).")
        for entry in entries:
            if entry["present"] == "no":
                console.print(
                    f"\n{entry['name']} is missing. It comes from {entry['origin']}\n{checksums(entry['files'])}"
                )


def parts_of(what: str, entries: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Sequence[Mapping[str, Any]]]]:
    """Yield what is listed together: of methods, algorithms and objectives."""
    if what != "algorithms":
        yield "", entries
        return
    for kind, title in METHODS.items():
        yield title, [entry for entry in entries if entry["is"] == kind]


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


def show(name: str, as_json: bool, console: Console) -> None:
    """Print one entry of the catalogue in full."""
    entry = page_of(name)
    if as_json:
        print(json.dumps(entry, indent=2))
        return
    for key, value in entry.items():
        console.print(key, style="bold")
        console.print(str(value) if key != "files" else checksums(value))


def page_of(name: str) -> dict[str, Any]:
    """Return an entry in full, by its name, `list.name` or the import path of a class."""
    if ":" in name:
        from imperfed.cli.catalogue import page_of_path

        return page_of_path(name)
    catalogue = read_catalogue()
    pages = catalogue.pages
    wanted, _, own = name.rpartition(".")
    lists = [what for what in pages if name in pages[what] or (wanted == what and own in pages[what])]
    if not lists:
        if reasons := [reasons[name] for reasons in catalogue.unusable.values() if name in reasons]:
            raise UsageError(reasons[0])
        raise unknown("name", name, {known for entries in pages.values() for known in entries})
    if len(lists) > 1:
        raise UsageError(f"{name!r} could be {' or '.join(f'{what}.{name}' for what in lists)}: say which")
    (what,) = lists
    page = pages[what].get(name) or pages[what][own]
    return verified(page) if what == "datasets" else page


def verified(dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dataset's page with whether its files are there, and are what they should be."""
    entry = with_presence(dataset)
    if entry["present"] == "yes":
        wrong = differing(entry["files"], data_folder())
        entry["verified"] = f"differs: {', '.join(wrong)}" if wrong else "all files match their checksums"
    return entry


def checksums(files: Mapping[str, str]) -> str:
    """Return a dataset's files, each with the SHA-256 of its contents, unpacked where it is gzipped."""
    return "\n".join(f"  {path}  sha256 {digest}" for path, digest in files.items()) or "none"
