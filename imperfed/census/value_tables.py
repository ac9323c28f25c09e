"""Tables of the input values on a console: one line per column and site, or per column if there are many."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from imperfed.census.input_values import ColumnValues, SiteValues
from imperfed.cli.terminal_table import TableColumn, print_table, print_wrapped
from imperfed.report.words import count

MOST_LINES = 36
"""The most lines with one per column and site; if there were more, one line per column."""
MOST_COLUMNS = 60
"""The most columns of inputs that are listed."""
FIGURES = ("blank", "distinct", "min", "q1", "median", "q3", "max")
OF_A_SITE = ("blank", "distinct", "min", "median", "max")
"""The figures of a line per column and site, which then fits 80 columns."""


def print_values(sites: Sequence[SiteValues], console: Console) -> None:
    """Print blanks, distinct values, quartiles and extremes of all columns of numbers."""
    names = [*sites[0].numbers]
    by_site = len(names) * len(sites) <= MOST_LINES
    title = "input values" if by_site else "input values over all sites"
    rows: list[list[str]] = []
    for name in names[:MOST_COLUMNS]:
        every = [site.numbers[name] for site in sites]
        if by_site:
            rows += [["" if k else name, site.site, *_figures(every[k])] for k, site in enumerate(sites)]
        else:
            rows.append([name, *_overall(every)])
    headings = ["column", "site", *OF_A_SITE] if by_site else ["column", *FIGURES]
    cells = zip(headings, zip(*rows, strict=True), strict=True)
    columns = [TableColumn(heading, column, heading in ("column", "site")) for heading, column in cells]
    print_table(console, columns, title, framed=False)
    if by_site:
        print_wrapped(console, "quartiles: imperfed inspect --json", "  ")
    else:
        more = f"; {len(names) - MOST_COLUMNS} more columns" if len(names) > MOST_COLUMNS else ""
        note = f"distinct: the most at a site; quartiles: the lowest to the highest of a site{more}. Every site:"
        note += " imperfed inspect --json"
        print_wrapped(console, note, "  ")


def _figures(column: ColumnValues) -> list[str]:
    if not column.known:
        return [count(column.blanks), "0", *[""] * 3]
    figures = (column.low.value, column.quartiles[1], column.high.value)
    return [count(column.blanks), count(column.distinct), *map(_short, figures)]


def _overall(sites: Sequence[ColumnValues]) -> list[str]:
    """Return the figures of a column over all sites; of distinct values the largest number at a site."""
    known = [site for site in sites if site.known]
    blanks = count(sum(site.blanks for site in sites))
    if not known:
        return [blanks, "0", *[""] * 5]
    ranges = []
    for quartile in range(3):
        values = [site.quartiles[quartile] for site in known]
        low, high = _short(min(values)), _short(max(values))
        ranges.append(low if low == high else f"{low} .. {high}")
    ends = min(site.low.value for site in known), max(site.high.value for site in known)
    return [blanks, count(max(site.distinct for site in known)), _short(ends[0]), *ranges, _short(ends[1])]


def _short(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.4g}"
