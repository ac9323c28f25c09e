"""A text file that was read without a declaration: the numbers and words of all its columns.

Where a declaration then wants columns that hold the same either way, the file need not be read a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from imperfed.data.files.dialect import Dialect, find_delimiter
from imperfed.data.files.problems import Problems
from imperfed.data.files.table import FileTable, Role, Wanted, note_absent


@dataclass(frozen=True, eq=False)
class UndeclaredText:
    """The columns of a text file, under their names as written."""

    path: Path
    delimiter: str
    names: tuple[str, ...]
    typed: Mapping[str, Any]
    """Every column as pyarrow reads it: numbers where all cells are numbers or blank, text elsewhere."""
    written: Mapping[str, Any]
    """The text of those columns that are neither text already nor many different numbers."""

    def table(self, wanted: Wanted, dialect: Dialect, spare: frozenset[str]) -> FileTable | None:
        """Return the columns as a reader with the declaration would; None if the file has to be read again."""
        problems = Problems()
        names = note_absent(self.path, wanted, [*self.names], problems, spare)
        marks = dialect.delimiter or find_delimiter(self.path, wanted), dialect.decimal or "."
        if problems or not names or marks != (self.delimiter, "."):
            return None
        columns = {name: self._column(name, wanted[name]) for name in names}
        if any(column is None for column in columns.values()):
            return None
        return FileTable(self.path, len(columns[names[0]]), columns, None, self.delimiter, ".")

    def _column(self, name: str, role: Role) -> Any:
        """Return a column in its role; None if its cells are something else, or may be."""
        from pyarrow import types

        typed = self.typed[name]
        if role != "number":
            return typed if types.is_string(typed.type) else self.written.get(name)
        whole = types.is_integer(typed.type) and not self._has_hexadecimals
        return typed if whole or types.is_floating(typed.type) else None

    @cached_property
    def _has_hexadecimals(self) -> bool:
        """Whether the file may have cells such as 0x1f, which pyarrow takes for whole numbers."""
        with self.path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as text:
            return text.find(b"0x") >= 0 or text.find(b"0X") >= 0
