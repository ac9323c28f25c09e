"""What is wrong with files: every problem is noted with its place and its fix, and one error reports them all."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from imperfed.core.errors import DataError
from imperfed.data.files.memory import Source

ALIKE = 5
"""How many problems of one file and column with the same expectation are listed individually."""
LINES = 50
"""How many problems are listed individually in all."""
ONE_NAME = 0.8
"""Similarity, as difflib computes it, from which two names are taken to be the same."""
LONGEST = 60
"""The number of characters of a cell that are shown."""

LINED = (".csv", ".tsv")
"""Suffixes of files whose rows have line numbers; the rows of others are counted from 0."""


@dataclass(frozen=True)
class Problem:
    """One thing that must be fixed before anything can be trained."""

    file: Source
    row: int | None
    """In text files the line that an editor shows, as quoted cells may span lines; in all others a count from 0."""
    column: str | None
    """A column, an array, or a key of federation.toml."""
    found: str
    expected: str
    fix: str

    @property
    def place(self) -> str:
        """File, row and column, as far as they are known."""
        suffix = self.file.suffix.lower()
        parts = [str(self.file)]
        if self.row is not None:
            parts.append(row_name(self.file, self.row))
        if self.column is not None:
            parts.append(f"{ {'.toml': 'key', '.npz': 'array'}.get(suffix, 'column') } {self.column}")
        return ", ".join(parts)

    def __str__(self) -> str:
        return f"{self.place}: found {self.found}, expected {self.expected}; {self.fix}"


@dataclass
class Problems:
    """All problems of a federation: similar ones are kept up to a limit, and all are counted."""

    kept: list[Problem] = field(default_factory=list)
    counts: Counter[tuple[Source, str | None, str]] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __len__(self) -> int:
        return self.counts.total()

    def add(self, file: Source, row: int | None, column: str | None, found: str, expected: str, fix: str) -> None:
        """Note a problem."""
        alike = file, column, expected
        self.counts[alike] += 1
        if self.counts[alike] <= ALIKE:
            self.kept.append(Problem(file, row, column, found, expected, fix))

    def take(self, others: Problems) -> None:
        """Add the problems of another list, in the order of rows."""
        self.kept += sorted(others.kept, key=lambda problem: -1 if problem.row is None else problem.row)
        self.counts += others.counts

    def lines(self) -> list[str]:
        """Return one line per problem, and how many more there are."""
        lines: list[str] = []
        seen: Counter[tuple[Source, str | None, str]] = Counter()
        for problem in self.kept[:LINES]:
            alike = problem.file, problem.column, problem.expected
            seen[alike] += 1
            lines.append(str(problem))
            if seen[alike] == ALIKE and (more := self.counts[alike] - ALIKE):
                lines.append(f"{problem.file}: {more:,} more like the last {ALIKE}")
                seen[alike] += more
        rest = len(self) - seen.total()
        return lines + ([f"and {rest:,} more"] if rest else [])

    def check(self, name: str) -> None:
        """Raise one `DataError` that lists all problems, if there are any."""
        if self:
            count = "one problem" if len(self) == 1 else f"{len(self):,} problems"
            lines = "".join(f"\n  {line}" for line in self.lines())
            raise DataError(f"{name}: {count}; nothing was trained or written{lines}")


def row_name(file: Source, row: int) -> str:
    """Return the name of a row in this file: its line or its number."""
    return f"{'line' if file.suffix.lower() in LINED else 'row'} {row}"


def shown(value: object) -> str:
    """Return a value for a message: quoted, with unprintable characters escaped, on one line, and not too long."""
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else " ".join(repr(value).splitlines())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint at the nearest known name, or a list of all known ones if none is near."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {shown(near[0])}?" if near else f"known: {listed(names)}"


def alike(name: str, known: Iterable[str]) -> str:
    """Return the known name that differs from this one only in case or by a typo; empty if there is none."""
    names = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=ONE_NAME)
    return names[near[0]] if near else ""


def listed(names: Sequence[str], most: int = 12) -> str:
    """Return names separated by commas, only the first few if there are many."""
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
