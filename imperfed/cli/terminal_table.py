"""Tables on a console that fit its width: headings and names are wrapped, and columns that do not fit go below."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

FIXED = "\ue000"
"""Stands for a blank at which no line is broken, until it is printed."""
FLOOR = 8
"""The least letters in a line of a name that has to be broken."""


@dataclass(frozen=True)
class TableColumn:
    """A column of figures, or of words."""

    title: str
    cells: Sequence[str]
    words: bool = False
    """Whether it holds names or sentences: aligned left, and a long word may be broken, which a number never is."""

    def natural(self) -> int:
        """Return the width without any wrapping."""
        return max(map(cell_len, (self.title, *self.cells)))

    def least(self) -> int:
        """Return the width that breaks no word."""
        return max(cell_len(word) for text in (self.title, *self.cells) for word in (*text.split(), ""))

    def floor(self) -> int:
        """Return the width below which the column cannot be shown."""
        return min(self.least(), FLOOR) if self.words else self.least()


def print_table(
    console: Console,
    columns: Sequence[TableColumn],
    title: str = "",
    bold: Collection[int] = (),
    total: bool = False,
    framed: bool = True,
) -> None:
    """Print a table; if it is too wide, as several, each with the first column.

    `bold`: the numbers of the rows that stand out. `total`: whether the last row is set apart.
    """
    print_wrapped(console, title, style="italic")
    for part, widths in _parts(columns, console.width, framed):
        table = Table(header_style="bold") if framed else Table(box=None, padding=(0, 1), header_style="bold")
        for column, width in zip(part, widths, strict=True):
            table.add_column(column.title, width=width, justify="left" if column.words else "right", overflow="fold")
        rows = list(zip(*(column.cells for column in part), strict=True))
        for number, row in enumerate(rows):
            if total and number == len(rows) - 1:
                table.add_section()
            table.add_row(*row, style="bold" if number in bold else None)
        console.print(table)


def print_wrapped(console: Console, sentence: str, indent: str = "", style: str = "") -> None:
    """Print a sentence in lines that fit, without breaking names and paths."""
    wrap = textwrap.TextWrapper(console.width, break_long_words=False, break_on_hyphens=False)
    wrap.initial_indent, wrap.subsequent_indent = indent, f"{indent}  "
    for line in wrap.wrap(sentence.replace(" %", f"{FIXED}%")):  # a number and its unit stay together
        console.print(line.replace(FIXED, " "), style=style or None)


def print_path(console: Console, path: Path) -> None:
    """Print a path in one piece, however long, so that it can be copied."""
    console.print(f"  {path}", soft_wrap=True, markup=False)


def _parts(
    columns: Sequence[TableColumn], width: int, framed: bool
) -> Iterator[tuple[Sequence[TableColumn], Sequence[int]]]:
    """Yield the columns of each table with their widths, as many as fit."""
    first, rest = columns[0], columns[1:]
    while True:
        for number in range(len(rest), -1, -1):
            part = [first, *rest[:number]]
            widths = _widths(part, width - _frame(len(part), framed))
            if widths or number <= 1:
                break
        yield part, widths or [column.floor() for column in part]
        rest = rest[number:]
        if not rest:
            return


def _frame(columns: int, framed: bool) -> int:
    """Return the width of lines and blanks around so many columns."""
    return 3 * columns + 1 if framed else 2 * columns


def _widths(columns: Sequence[TableColumn], room: int) -> list[int]:
    """Return the widths of all columns, none if there is too little room: no broken words, then whole names, then all.

    What is left over goes to the narrowest columns.
    """
    widths = [column.floor() for column in columns]
    if sum(widths) > room:
        return []
    least, natural = [column.least() for column in columns], [column.natural() for column in columns]
    names = [n if column.words else m for column, m, n in zip(columns, least, natural, strict=True)]
    for goals in (least, names, natural):
        while sum(widths) < room and (short := [i for i, goal in enumerate(goals) if widths[i] < goal]):
            widths[min(short, key=widths.__getitem__)] += 1
    return widths
