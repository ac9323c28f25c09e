"""A file, or a table in memory, as columns: CSV, Parquet, NPZ, or a folder of images by class.

Readers read the requested columns, note what is wrong, and still return what can be read, so that other problems of the
same file are found as well.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from imperfed.core.errors import DataError
from imperfed.data.files.dialect import Dialect
from imperfed.data.files.medical import MEDICAL
from imperfed.data.files.memory import MemoryTable, Source
from imperfed.data.files.problems import LINED, Problems, alike, listed, nearest, row_name, shown
from imperfed.data.readers import read_arrays

Role = Literal["number", "code", "text"]
"""What a column holds: numbers; a few distinct values, each of which is converted once; any text."""
Wanted = Mapping[str, Role]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm", *MEDICAL)
"""Suffixes by which images in a folder are recognised."""
FORMATS = (*LINED, ".parquet", ".npz")
IMAGE, CLASS = "image", "class"
"""The columns of a folder of images by class."""


@dataclass(frozen=True)
class FileTable:
    """The columns of a file: pyarrow arrays, or NumPy arrays if a row has several values."""

    file: Source
    rows: int
    columns: dict[str, Any] = field(default_factory=dict)
    lines: npt.NDArray[np.int64] | None = None
    """The line at which each row begins, if the file was read with line numbers."""
    delimiter: str = ","
    decimal: str = "."

    @property
    def is_folder(self) -> bool:
        """Whether the table lists the images of a folder."""
        return self.file.suffix.lower() not in FORMATS

    def at(self, row: int) -> tuple[Source, int | None]:
        """Return the file and the line or row in it; in a folder, the image."""
        if self.is_folder and isinstance(self.file, Path):
            return self.file / self.columns[IMAGE][row].as_py(), None
        return self.file, row if self.lines is None else int(self.lines[row])

    def row_name(self, row: int) -> str:
        """Return the line or row in the file, in words."""
        file, number = self.at(row)
        return file.name if number is None else row_name(file, number)

    def note(self, problems: Problems, row: int, column: str, found: str, expected: str, fix: str) -> None:
        """Note a problem of one cell."""
        problems.add(*self.at(row), column, found, expected, fix)

    @cached_property
    def numbered(self) -> FileTable:
        """The same table with the line numbers of its rows, for which a text file is read again."""
        if self.lines is not None or self.file.suffix.lower() not in LINED or isinstance(self.file, MemoryTable):
            return self
        from imperfed.data.files.text import read_slowly

        return replace(self, lines=read_slowly(self.file, {}, self.delimiter, Problems()).lines)


def read_table(
    path: Source,
    wanted: Wanted,
    dialect: Dialect,
    problems: Problems,
    spare: frozenset[str] = frozenset(),
    slowly: bool = False,
    unsorted: bool = False,
) -> FileTable | None:
    """Return the wanted columns of a table; those in `spare` may be absent. None if nothing can be read.

    `slowly`: the line numbers of text files are kept as well. `unsorted`: images need not lie in folders by class.
    """
    if isinstance(path, MemoryTable):
        return _in_memory(path, wanted, problems, spare)
    suffix = path.suffix.lower()
    if os.path.isdir(path):
        return _folder(path, problems, unsorted)
    if suffix not in FORMATS:
        expected = f"a file ending in {listed(FORMATS)}, or a folder of images by class"
        problems.add(path, None, None, "another kind of file", expected, "convert it, or fix the path")
        return None
    if not _readable(path, problems):
        return None
    if suffix in LINED:
        from imperfed.data.files.text import read_text

        return read_text(
            path, wanted, replace(dialect, delimiter="\t") if suffix == ".tsv" else dialect, problems, spare, slowly
        )
    return (_parquet if suffix == ".parquet" else _npz)(path, wanted, problems, spare)


def note_absent(
    path: Source, wanted: Wanted, present: list[str], problems: Problems, spare: frozenset[str]
) -> list[str]:
    """Return the wanted columns that are present; missing ones are noted, and so are names that occur twice.

    Columns in `spare` are noted only if another column seems to be the one that is meant.
    """
    times = Counter(present)
    for name in wanted:
        if name not in times and name not in spare:
            hint = nearest(name, present) if present else "the table has no columns"
            problems.add(path, None, name, "no such column", "one of this name", hint)
        elif name not in times and (other := alike(name, [column for column in present if column not in wanted])):
            hint = f"did you mean {shown(other)}? Rename it, or remove it from the table"
            problems.add(path, None, name, "no such column", "one of this name", hint)
        elif times[name] > 1:
            problems.add(path, None, name, f"{times[name]} columns of this name", "one", "rename the others")
    return [name for name in wanted if times[name] == 1]


def no_rows(path: Source, problems: Problems) -> None:
    """Note that a table is empty."""
    problems.add(path, None, None, "no rows", "at least one", "add rows, or remove the file")


def _in_memory(table: MemoryTable, wanted: Wanted, problems: Problems, spare: frozenset[str]) -> FileTable | None:
    names = note_absent(table, wanted, [*table.columns], problems, spare)
    if not table.rows:
        no_rows(table, problems)
        return None
    return FileTable(table, table.rows, {name: table.columns[name] for name in names})


def _readable(path: Path, problems: Problems) -> bool:
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except (OSError, ValueError) as error:
        found = "no such file" if isinstance(error, FileNotFoundError) else f"no access ({error})"
        problems.add(path, None, None, found, "a file that can be read", "fix the path")
        return False
    if empty:
        no_rows(path, problems)
    return not empty


def _parquet(path: Path, wanted: Wanted, problems: Problems, spare: frozenset[str]) -> FileTable | None:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            columns = note_absent(path, wanted, file.schema_arrow.names, problems, spare)
            table = file.read(columns=columns)
            table.validate(full=True)
            rows = file.metadata.num_rows
            if rows < 0 or any(len(column) != rows for column in table.columns):
                raise ValueError(f"{rows} rows announced, but columns of other lengths")
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        found = shown(str(error).splitlines()[0] if str(error) else "nothing")
        problems.add(path, None, None, found, "a Parquet file", "write it again")
        return None
    if not rows:
        no_rows(path, problems)
        return None
    return FileTable(path, rows, {name: table[name] for name in columns})


def _npz(path: Path, wanted: Wanted, problems: Problems, spare: frozenset[str]) -> FileTable | None:
    import pyarrow

    try:
        arrays = read_arrays(path)
    except DataError as error:
        found = str(error).removeprefix(f"{path}: ")
        problems.add(path, None, None, found, "an archive of plain arrays", "write it with numpy.savez")
        return None
    names = note_absent(path, wanted, [*arrays], problems, spare)
    arrays = {name: arrays[name] for name in names}
    for name in [name for name, array in arrays.items() if not array.ndim or array.dtype.kind not in "biufU"]:
        array = arrays.pop(name)
        found = f"{array.dtype} of shape {array.shape}"
        problems.add(path, None, name, found, "numbers or text, one row per example", "write it again")
    rows = {len(array) for array in arrays.values()}
    if len(rows) > 1:
        for name, array in arrays.items():
            expected = f"as many rows in each of {listed([*arrays])}"
            problems.add(path, None, name, f"{len(array)} rows", expected, "write all arrays for the same examples")
        return None
    if rows == {0}:
        no_rows(path, problems)
    if not rows or rows == {0}:
        return None
    return FileTable(path, rows.pop(), {k: pyarrow.array(a) if a.ndim == 1 else a for k, a in arrays.items()})


def _folder(path: Path, problems: Problems, unsorted: bool) -> FileTable | None:
    """Return the images of a folder with one folder per class, in the order of their names; other files are ignored.

    `unsorted`: images that lie in the folder itself count as well.
    """
    import pyarrow

    images = sorted(
        image.relative_to(path)
        for pattern in (("*", "*/*") if unsorted else ("*/*",))
        for image in path.glob(pattern)
        if image.name.lower().endswith(IMAGES)
        and image.is_file()
        and not any(part.startswith(".") for part in image.relative_to(path).parts)
    )
    if not images:
        expected = "images" if unsorted else "<class>/<image>"
        fix = "put images there" if unsorted else "make one folder of images per class"
        problems.add(path, None, None, "no images", expected, fix)
        return None
    text = {IMAGE: [image.as_posix() for image in images], CLASS: [image.parts[0] for image in images]}
    return FileTable(
        path, len(images), {name: pyarrow.array(values, pyarrow.string()) for name, values in text.items()}
    )
