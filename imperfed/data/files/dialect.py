"""The dialect of a text file: the mark between cells, the decimal mark, and the words that mean a blank.

Marks are found file by file unless they are declared, since the sites of a federation may write different dialects.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imperfed.data.files.blanks import common_words
from imperfed.data.files.declaration import Declaration, Places

DELIMITERS = (",", ";", "\t")
POINT = re.compile(r"\s*[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
COMMA = re.compile(r"\s*[+-]?(\d+,\d*|,\d+)([eE][+-]?\d+)?\s*", re.ASCII)
THOUSANDS = re.compile(r"\s*[+-]?\d{1,3}(,\d{3})+\s*", re.ASCII)


@dataclass(frozen=True)
class Dialect:
    """How the text of one file is read; an empty mark is found from the file itself."""

    delimiter: str = ""
    decimal: str = ""
    missing: tuple[str, ...] = ()
    """Words that stand for a blank in columns of numbers."""

    @classmethod
    def of(cls, declaration: Declaration, site: str) -> Dialect:
        """Return what is declared about the files of a site; without a name, about files of no site."""
        delimiter, decimal = (_of_site(declared, site) for declared in (declaration.delimiter, declaration.decimal))
        return cls(delimiter, decimal, common_words(declaration.inputs))


def _of_site(declared: Places, site: str) -> str:
    return declared.get(site, "") if isinstance(declared, Mapping) else declared


def find_delimiter(path: Path, wanted: Collection[str] = ()) -> str:
    """Return the mark that splits a file's first line into the most wanted names, or else into the most cells."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        first = next((line for line in file if line.strip()), "")

    def merit(mark: str) -> tuple[int, int]:
        names = [name.strip() for name in next(csv.reader([first], delimiter=mark), [])]
        return len({*names} & {*wanted}), len(names)

    return max(DELIMITERS, key=merit)


def find_decimal(columns: Iterable[Sequence[str]], delimiter: str) -> str:
    """Return the decimal mark of columns of numbers: a comma if some numbers have one and none has a point.

    Where cells are separated by commas, 1,500 may be a thousand and a half: then only other numbers decide.
    """
    commas = 0
    for cells in columns:
        for cell in cells:
            if POINT.fullmatch(cell):
                return "."
            commas += bool(COMMA.fullmatch(cell)) and not (delimiter == "," and THOUSANDS.fullmatch(cell))
    return "," if commas else "."
