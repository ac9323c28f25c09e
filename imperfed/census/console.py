"""The census on a console, at most eighty columns wide; of many sites a summary and the extremes."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from imperfed.census.figures import Census, SiteCensus
from imperfed.census.inspect import Inspection
from imperfed.census.value_tables import print_values
from imperfed.cli.terminal_table import TableColumn, print_table, print_wrapped
from imperfed.core.labels import ClassCounts
from imperfed.data.files.problems import listed
from imperfed.report.words import count, many

WIDTH = 80
MOST_SITES = 20
"""The most sites that are listed one by one."""
EXTREMES = 3
"""If there are more sites: the number of largest, smallest and most unlike ones that are listed."""
MOST_CLASSES = 30
"""The most classes that are listed one by one; if there are more: the ten most frequent and the ten rarest."""


def print_inspection(inspection: Inspection, console: Console, pictures: Mapping[str, Path]) -> None:
    """Print the guesses, the figures, the warnings, the methods that fit, and the commands to type next."""
    census = inspection.census
    if inspection.guessed:
        _print_guesses(inspection, console)
    classes = many(len(census.classes), "class", "classes")
    held = f"{many(len(census.sites), 'site')}, {many(census.rows, 'row')}, {classes}"
    print_wrapped(console, f"{census.name}: {held}; {census.kind.title}", style="bold")
    _print_sites(census, console)
    _print_classes(census, console)
    if inspection.values[0].numbers:
        print_values(inspection.values, console)
    further = _further(census)
    if further and inspection.values[0].numbers:
        console.print()
    for line in further:
        print_wrapped(console, line)
    if inspection.warnings:
        console.print("\nwarnings:", style="bold")
        for sentence in inspection.warnings:
            print_wrapped(console, sentence, "  ")
    _print_advice(inspection, console)
    console.print("")
    for what, path in pictures.items():
        console.print(f"{what} as a picture: {path}", soft_wrap=True)
    console.print("next:", style="bold")
    for step in inspection.steps:
        console.print(f"  {step.command}", soft_wrap=True)
        print_wrapped(console, step.why, "      ")


def _print_guesses(inspection: Inspection, console: Console) -> None:
    """Print what to check, and federation.toml itself if it could not be written."""
    if inspection.declaration.in_memory:
        guessed = "Guessed from the columns"
    else:
        done = "could not be written" if inspection.unwritten else "written"
        guessed = f"{inspection.declaration.file} was guessed from the files and {done}"
    console.print(f"{guessed}. Please check:", style="bold")
    for sentence in inspection.guessed:
        print_wrapped(console, sentence, "  ")
    console.print()
    if inspection.unwritten:
        copy = "This federation.toml can be used beside a copy of the files, or with their full path in `sites`:"
        print_wrapped(console, copy)
        console.print(f"\n{inspection.unwritten}")


def _print_sites(census: Census, console: Console) -> None:
    """Print one line per site; of many sites only the extremes."""
    chosen = [(k, "") for k in range(len(census.sites))]
    if len(census.sites) > MOST_SITES:
        rows = [site.rows for site in census.sites]
        sizes = f"{count(min(rows))} to {count(max(rows))} rows per site, median {statistics.median(rows):g}"
        print_wrapped(console, f"{sizes}; {_held(census)}. The extremes:")
        chosen = _extremes(census)
    sites, repeats = [census.sites[k] for k, _ in chosen], census.repeats
    columns = [
        TableColumn("site", [site.name for site in sites], words=True),
        TableColumn("rows", [count(site.rows) for site in sites]),
        TableColumn("classes", [str(int((site.known.weight > 0).sum())) for site in sites]),
        TableColumn("largest class", [_largest(site) for site in sites], words=True),
        TableColumn("skew", [_two(site.skew) for site in sites]),
    ]
    more = [
        (TableColumn("set size", [_mean_size(site) for site in sites]), bool(census.sizes())),
        (TableColumn("ambiguous", [count(site.ambiguous) for site in sites]), any(s.ambiguous for s in census.sites)),
        (TableColumn("repeated", [count(repeats.within[k]) for k, _ in chosen]), any(repeats.within)),
        (TableColumn("elsewhere", [count(repeats.elsewhere[k]) for k, _ in chosen]), any(repeats.elsewhere)),
        (TableColumn("which is", [which for _, which in chosen], words=True), len(census.sites) > MOST_SITES),
    ]
    print_table(console, [*columns, *(column for column, shown in more if shown)])
    skew = "skew: how far a site's class shares are from those of all sites, 0 to 1 (1: no class in common)"
    print_wrapped(console, skew)
    if unlabelled := [site.name for site in sites if site.skew is None]:
        print_wrapped(console, f"no largest class and no skew at {listed(unlabelled)}: it labels no row")
    console.print()


def _extremes(census: Census) -> list[tuple[int, str]]:
    """Return the extreme sites, each once, and in what they are extreme."""
    every = range(len(census.sites))
    by_rows = sorted(every, key=lambda k: -census.sites[k].rows)
    by_skew = sorted(every, key=lambda k: -(census.sites[k].skew or 0.0))
    ends = {"largest": by_rows[:EXTREMES], "smallest": by_rows[-EXTREMES:], "most unlike": by_skew[:EXTREMES]}
    chosen: dict[int, str] = {}
    for which, sites in ends.items():
        for k in sites:
            chosen.setdefault(k, which)
    return list(chosen.items())


def _held(census: Census) -> str:
    held = [int((site.known.weight > 0).sum()) for site in census.sites]
    few, most = min(held), max(held)
    return f"{few if few == most else f'{few} to {most}'} {'class' if most == 1 else 'classes'} at a site"


def _print_classes(census: Census, console: Console) -> None:
    """Print a table of classes by sites if that fits, else of classes and what is known about them overall."""
    known = [site.known for site in census.sites]
    cells = [[_cell(census, k, c) for k in known] for c in range(len(census.classes))]
    names = [site.name for site in census.sites]
    widths = [max(map(len, (name, *column))) for name, column in zip(names, zip(*cells, strict=True), strict=True)]
    wide = sum(widths) + 3 * len(widths) + max(map(len, census.classes)) + 4 > WIDTH or len(names) > MOST_SITES
    title = census.kind.caption
    if wide:
        names, title = ["with the class", "without it", "not known", "at sites"], "rows of all sites"
        cells = _totals(census)
    shown = _shown_classes(census)
    columns = [TableColumn("class", ["(others)" if c is None else census.classes[c] for c in shown], words=True)]
    columns += [
        TableColumn(name, ["" if c is None else cells[c][column] for c in shown]) for column, name in enumerate(names)
    ]
    print_table(console, columns, title)


def _shown_classes(census: Census) -> list[int | None]:
    if len(census.classes) <= MOST_CLASSES:
        return list(range(len(census.classes)))
    often = census.known.weight.sort(descending=True, stable=True).indices.tolist()
    return [*often[:10], None, *often[-10:]]


def _cell(census: Census, known: ClassCounts, c: int) -> str:
    """Return what one site says about one class."""
    return census.kind.tally(*(int(rows[c]) for rows in (known.positive, known.negative, known.unknown)))


def _totals(census: Census) -> list[list[str]]:
    """Return what is known about each class overall, and at how many sites."""
    known, at = census.known, torch.stack([census.kind.held(site.known) for site in census.sites]).sum(0)
    columns = (known.positive, known.negative, known.unknown, at)
    return [list(map(count, row)) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _further(census: Census) -> list[str]:
    """Return one line each about candidate sets, pairs of classes and groups."""
    lines = []
    sizes = census.sizes()
    if sizes:
        mean = sum(size * rows for size, rows in sizes.items()) / census.rows
        by_size = ", ".join(f"{size}: {count(rows)}" for size, rows in sizes.items())
        lines.append(f"candidate sets: {mean:.2f} of {len(census.classes)} classes on average; rows by size: {by_size}")
    if census.pairs:
        pairs = ", ".join(f"{a} and {b} {count(n)}" for a, b, n in census.pairs[:5])
        lines.append(f"most often together: {pairs}")
    groups = {name: sum(site.groups[name] for site in census.sites) for name in census.sites[0].groups}
    if groups:
        members = ", ".join(f"{name} {count(rows)}" for name, rows in groups.items())
        several = sum(site.ambiguous for site in census.sites)
        if several:
            lines.append(f"rows that may belong to each group: {members}; to several: {count(several)}")
        else:
            lines.append(f"rows of each group: {members}")
    return lines


def _print_advice(inspection: Inspection, console: Console) -> None:
    """Print what was made for these labels, with one line each; the rest by name."""
    kind = inspection.census.kind
    console.print(f"\nmade for {kind.title}{', of which some are wrong' if kind.settles else ''}:", style="bold")
    table = Table(show_header=False, box=None, padding=(0, 1))
    for width in (22, 11, 41):
        table.add_column(width=width, overflow="fold")
    for entry in inspection.advice:
        if entry.made_for:
            table.add_row(f"  {entry.name}", entry.part, f"{entry.why}{_needs(entry.needs)}")
    console.print(table)
    rest = [f"{entry.name}{_needs(entry.needs)}" for entry in inspection.advice if not entry.made_for]
    print_wrapped(console, f"can learn from them as well, through an objective: {', '.join(rest)}")


def _needs(needs: str) -> str:
    return f" ({needs})" if needs else ""


def _largest(site: SiteCensus) -> str:
    return "" if site.largest is None else f"{site.largest[0]} {100 * site.largest[1]:.0f} %"


def _two(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _mean_size(site: SiteCensus) -> str:
    return f"{sum(size * rows for size, rows in site.sizes.items()) / site.rows:.2f}" if site.sizes else ""
