"""Text files of cells: only the cells of changed labels are rewritten; all other bytes are those of the file."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

from imperfed.data.files.dialect import find_delimiter
from imperfed.data.files.text import LONGEST_CELL
from imperfed.label_audit.formats import NewLabels, Place

BOM = b"\xef\xbb\xbf"
Change = Callable[[int | None, list[str]], list[str]]
"""From the number of a row (None: the header; EMPTY) and its cells as written to its new cells."""
EMPTY = -1
"""A row of empty cells, which readers leave out and do not count."""


def rewrite(source: Path, target: Path, place: Place, new: NewLabels) -> None:
    """Write the file with other labels, and the cells of the given ones in a last column."""
    between = delimiter_of(source, place)
    at = header(source, between).index(place.label)

    def change(row: int | None, cells: list[str]) -> list[str]:
        if row is None:
            return [*cells, place.given]
        given = cells[at]
        if row in new:
            cells[at] = written_like(given, new[row], between)
        return [*cells, given]

    _write(source, target, between, change)


def restore(source: Path, target: Path, place: Place) -> None:
    """Put the given cells back, and drop their column."""
    between = delimiter_of(source, place)
    names = header(source, between)
    at, given = names.index(place.label), names.index(place.given)

    def change(row: int | None, cells: list[str]) -> list[str]:
        if row is not None:
            cells[at] = cells[given]
        return cells[:given] + cells[given + 1 :]

    _write(source, target, between, change)


def delimiter_of(file: Path, place: Place) -> str:
    """Return what stands between cells."""
    if file.suffix.lower() == ".tsv":
        return "\t"
    return place.delimiter or find_delimiter(file, (place.label,))


def header(file: Path, delimiter: str) -> list[str]:
    """Return the names of the columns."""
    with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        return [name.strip() for name in next(row for row in csv.reader(lines, delimiter=delimiter) if row)]


def _write(source: Path, target: Path, delimiter: str, change: Change) -> None:
    begin = BOM if source.read_bytes()[: len(BOM)] == BOM else b""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        out.write(begin)
        row: int | None = None
        for record, read in records(source, delimiter):
            text = record.rstrip("\r\n")
            if read:
                empty = row is not None and not any(read)
                cells = change(EMPTY if empty else row, raw_cells(text, delimiter))
                record = delimiter.join(cells) + record[len(text) :]
                if not empty:
                    row = 0 if row is None else row + 1
            out.write(record.encode("utf-8", "surrogateescape"))


def records(file: Path, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """Yield every record as it is written, with its line ending, and the cells that a reader finds in it."""
    taken: list[str] = []

    def lines() -> Iterator[str]:
        with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as opened:
            for line in opened:
                taken.append(line)
                yield line

    csv.field_size_limit(LONGEST_CELL)
    for row in csv.reader(lines(), delimiter=delimiter, strict=True):  # it takes the lines of one record at a time
        yield "".join(taken), row
        taken.clear()


def raw_cells(record: str, delimiter: str) -> list[str]:
    """Return the cells of a record as they are written, with their quotes."""
    if '"' not in record:
        return record.split(delimiter)
    cells: list[str] = []
    start = 0
    while True:
        end = record.find(delimiter, _after_quotes(record, start))
        if end < 0:
            return [*cells, record[start:]]
        cells.append(record[start:end])
        start = end + 1


def _after_quotes(record: str, start: int) -> int:
    """Return where the quoted part of a cell ends; its beginning if it is not quoted."""
    if record[start : start + 1] != '"':
        return start
    end = record.index('"', start + 1)
    while record[end + 1 : end + 2] == '"':
        end = record.index('"', end + 2)
    return end + 1


def written_like(before: str, label: str, delimiter: str) -> str:
    """Return the cell of a label, in quotes where the one before was or where it must be."""
    quoted = before.startswith('"') or any(mark in label for mark in (delimiter, '"', "\r", "\n"))
    escaped = label.replace('"', '""')
    return f'"{escaped}"' if quoted else label
