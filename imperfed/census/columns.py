"""What the columns of tables without a declaration hold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from imperfed.data.files.labelled import SEPARATORS
from imperfed.data.files.table import IMAGES

MOST_WORDS, MOST_NUMBERS = 1_000_000, 1_000
"""The most distinct values of a column that are remembered."""
MOST_GRADES = 20
"""The most distinct fractional numbers that may be names of classes, such as the grades 1.0, 1.3, 1.7."""
SPOILT = 0.05
"""The largest share of cells without a number that are taken as mistakes."""
MARKS = (-1.0, 0.0, 1.0)
PAIRS = re.compile(r"\d+:[-+.\deE]+(\s+\d+:[-+.\deE]+)*")
CODE = r"^0\d+$"
"""A number as it is written in ids and postcodes, and never in measurements: with leading zeros."""
DATE = re.compile(r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3(\d{4}|\d\d))(?!\d)")
INTERVAL = re.compile(r"[\[(]\s*([-+.\deE]+|-?inf)\s*,\s*([-+.\deE]+|inf)\s*[\])]")
"""A range of numbers, as `pandas.cut` names it: (0.5, 1.0]."""
BLANK_WORDS = frozenset(
    ("n/a", "na", "#n/a", "nan", "null", "none", "nil", "-", "--", "---", "?", ".", "missing", "unknown", "k.a.")
)
"""What people write instead of a number that they do not have, in small letters."""
PROSE = 4
"""The number of words from which a cell, or a part of one between separators, is free text."""


@dataclass(frozen=True)
class Column:
    """The contents of one column of one file, or of several files together."""

    name: str
    rows: int
    blanks: int
    """The number of cells without a value, among them those that say so in a word of `missing`."""
    numeric: bool
    """Whether every cell that is not blank is a number."""
    odd: int
    """The number of cells that are neither blank nor a number; 0 if `numeric`."""
    lists: bool
    unique: bool
    """Whether no value occurs in two rows of a file."""
    values: frozenset[str] | None
    """The distinct values (of lists: their items), or None if there are too many."""
    missing: dict[str, int] = field(default_factory=dict)
    """Words that stand for a blank among numbers, and how often each does."""
    codes: bool = False
    """Whether whole numbers are written with leading zeros."""

    @classmethod
    def joined(cls, parts: Sequence[Column]) -> Column:
        """Return the same column of several files as one."""
        numeric = all(part.numeric for part in parts)
        parts = parts if numeric else [part._of_words() for part in parts]
        values = [part.values for part in parts if part.values is not None]
        missing: Counter[str] = sum((Counter(part.missing) for part in parts), Counter())
        return cls(
            parts[0].name,
            sum(part.rows for part in parts),
            sum(part.blanks for part in parts),
            numeric,
            sum(part.odd for part in parts),
            all(part.lists for part in parts),
            all(part.unique for part in parts),
            None if len(values) < len(parts) else kept(frozenset().union(*values), numeric),
            dict(sorted(missing.items())),
            numeric and any(part.codes for part in parts),
        )

    def _of_words(self) -> Column:
        """Return the column as one of words, in which a word for a blank is a word like any other."""
        if not self.missing:
            return self
        cells = sum(self.missing.values())
        values = None if self.values is None else kept(self.values | {*self.missing}, False)
        return replace(self, blanks=self.blanks - cells, numeric=False, odd=self.odd + cells, values=values, missing={})

    @property
    def known(self) -> int:
        """The number of cells that are not blank."""
        return self.rows - self.blanks

    @property
    def few(self) -> bool:
        """Whether values repeat, as names of classes and categories do."""
        return self.values is not None and 0 < len(self.values) <= max(2, (self.rows - self.blanks) // 2)

    @property
    def nearly_numeric(self) -> bool:
        """Whether all but a few cells are numbers."""
        return not self.lists and 0 < self.odd <= SPOILT * (self.rows - self.blanks)

    @property
    def paths(self) -> bool:
        """Whether the values are paths of images."""
        return bool(self.values) and all(value.lower().endswith(IMAGES) for value in self.values or ())

    @property
    def pairs(self) -> bool:
        """Whether the values are sparse features, written as `index:value` pairs."""
        return bool(self.values) and all(PAIRS.fullmatch(value) for value in self.values or ())

    @property
    def dates(self) -> bool:
        """Whether the values are dates, with or without a time."""
        return bool(self.values) and all(DATE.match(value) for value in self.values or ())

    @property
    def marks(self) -> bool:
        """Whether the values are only yes, no and in doubt."""
        return bool(self.values) and self.numeric and {*map(float, self.values or ())} <= {*MARKS}

    @property
    def measured(self) -> bool:
        """Whether the values are measurements, such as 3.7, and no names of classes."""
        if not self.numeric or (self.values is not None and len(self.values) <= MOST_GRADES):
            return False
        return self.values is None or any(not float(value).is_integer() for value in self.values)

    @property
    def yes_no_or_blank(self) -> bool:
        """Whether the values are only 1 and 0, and some cells are blank."""
        return self.marks and bool(self.blanks) and {*map(float, self.values or ())} <= {0.0, 1.0}

    def separator(self) -> str:
        """Return the mark between the names of a set; empty if cells hold no sets."""
        return self._separator

    @cached_property
    def _separator(self) -> str:
        if self.numeric or not self.values or all(INTERVAL.fullmatch(value) for value in self.values):
            return ""
        text = "\n".join(self.values)
        for mark in (mark for mark in SEPARATORS if mark in text):
            sets = [[item.strip() for item in value.split(mark)] for value in self.values]
            if any(len(item.split()) >= PROSE for names in sets for item in names):
                continue  # free text, in which a comma is only a comma
            items = {item for names in sets for item in names}
            if any(len(names) > 1 for names in sets) and "" not in items and len(items) <= max(2, self.rows // 2):
                return mark
        return ""

    def names(self) -> tuple[str, ...]:
        """Return the names that occur, alone or in sets: numbers in ascending order, words in alphabetical order."""
        mark = self.separator()
        names = {item.strip() for value in self.values or () for item in (value.split(mark) if mark else (value,))}
        return self._in_order(names)

    def categories(self) -> tuple[str, ...]:
        """Return the values that occur, each as a whole, whatever separators it holds, in the same order."""
        return self._in_order({value.strip() for value in self.values or ()})

    def _in_order(self, names: Collection[str]) -> tuple[str, ...]:
        return tuple(sorted(names, key=float) if self.numeric else sorted(names))


def merged(profiles: Iterable[dict[str, Column]]) -> dict[str, Column]:
    """Return every column, merged over the files that have it, in order of first appearance."""
    every = list(profiles)
    names = dict.fromkeys(name for columns in every for name in columns)
    return {name: Column.joined([columns[name] for columns in every if name in columns]) for name in names}


def kept(values: Collection[str], numeric: bool) -> frozenset[str] | None:
    """Return the distinct values of a column, or None if there are too many to remember."""
    return frozenset(values) if len(values) <= (MOST_NUMBERS if numeric else MOST_WORDS) else None
