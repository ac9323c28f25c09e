"""The layout of a folder: which files are sites, which are test files, and which are neither."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from imperfed.core.errors import DataError
from imperfed.data.files.memory import MemoryTable, Source
from imperfed.data.files.reading import places
from imperfed.data.files.table import IMAGES
from imperfed.data.files.text import SAVE_AS_CSV

TABLES = (".csv", ".tsv", ".parquet", ".npz")
WORKBOOKS = (".xlsx", ".xls", ".ods")
BESIDES = ("test", "public", "trusted")
"""Keys of a declaration, and the prefixes of names of files or folders that belong to them."""


@dataclass(frozen=True)
class FolderLayout:
    """The places of the sites, relative to `folder`."""

    folder: Path
    sites: str
    """A path with a `*` for the site's name, or one file for all sites."""
    others: bool
    """Whether the path with its `*` also matches things that are not sites."""
    files: tuple[Source, ...]
    """The files of the sites, or their folders of images."""
    besides: dict[str, str]
    """Test files and the like, as a declaration names them."""
    images: bool
    """Whether a site is a folder of images by class."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files of the sites that are not in memory."""
        return tuple(file for file in self.files if isinstance(file, Path))

    def named(self) -> Mapping[str, Source]:
        """Return the files of the sites by what `*` stands for in their paths; "" names one file for all sites."""
        return {name: path for name, path in places(self.sites, self.folder).items() if path in self.files}

    def place(self, file: Source) -> str:
        """Return the path of a file, relative to the folder, or the name of a table in memory."""
        return file.relative_to(self.folder).as_posix() if isinstance(file, Path) else str(file)


@dataclass(frozen=True)
class MemoryLayout(FolderLayout):
    """Tables in memory, one per site, or one for all sites."""

    tables: Mapping[str, MemoryTable]

    @classmethod
    def of(cls, tables: Mapping[str, MemoryTable]) -> MemoryLayout:
        """Return the layout of tables by the names of their sites; "" names one table for all sites."""
        return cls(Path(), "" if "" in tables else "*", False, (*tables.values(),), {}, False, tables)

    def named(self) -> Mapping[str, Source]:
        """Return the tables by the names of their sites."""
        return self.tables


def find_layout(path: Path) -> FolderLayout:
    """Return the layout of a folder, or of one file that holds all sites."""
    if path.is_file():
        _refuse_spreadsheet(path)
        if path.suffix.lower() not in TABLES:
            raise DataError(f"{path}: not a table; expected a file ending in {', '.join(TABLES)}, or a folder")
        return FolderLayout(path.parent, path.name, False, (path,), {}, False)
    every = [p for p in sorted(path.rglob("*")) if not any(part.startswith(".") for part in p.relative_to(path).parts)]
    tables = [p for p in every if p.suffix.lower() in TABLES and p.is_file()]
    folders = sorted({p.parent.parent for p in every if p.name.lower().endswith(IMAGES)} - {path, path.parent})
    things = tables or folders
    special = {thing: key for thing in things if (key := _besides(thing.relative_to(path)))}
    sites = [thing for thing in things if thing not in special]
    if not sites:
        for file in every:
            _refuse_spreadsheet(file)
        raise DataError(
            f"{path}: found no sites; expected one CSV, Parquet or NPZ file per site, one file for all sites, or "
            "folders <site>/<class>/ of images"
        )
    pattern, files = _pattern(path, sites, bool(tables))
    besides = {
        key: _place(path, [thing for thing, its_key in special.items() if its_key == key], key, bool(tables))
        for key in dict.fromkeys(special.values())
    }
    others = "*" in pattern and (pattern == "*" or set(path.glob(pattern)) != set(files))
    return FolderLayout(path, pattern, others, files, besides, not tables)


def _refuse_spreadsheet(path: Path) -> None:
    if path.suffix.lower() in WORKBOOKS:
        raise DataError(f"{path}: found a spreadsheet, expected a CSV, Parquet or NPZ file; {SAVE_AS_CSV}")


def _besides(path: Path) -> str | None:
    words = [part.lower() for part in path.parts]
    return next((key for key in BESIDES for word in words if word.startswith(key)), None)


def _pattern(folder: Path, sites: list[Path], tables: bool) -> tuple[str, tuple[Path, ...]]:
    """Return the path with one `*` that matches most files, and those files."""
    patterns: Counter[str] = Counter()
    for site in sites:
        patterns[_relative(folder, site.parent / f"*{site.suffix if tables else ''}")] += 1
        if site.parent != folder and tables:
            patterns[_relative(folder, site.parent.parent / "*" / site.name)] += 1
    pattern, count = patterns.most_common(1)[0]
    if count == 1 and tables:  # one file for all sites
        return _relative(folder, sites[0]), (sites[0],)
    matches = set(folder.glob(pattern))
    return pattern, tuple(site for site in sites if site in matches)


def _place(folder: Path, files: list[Path], key: str, tables: bool) -> str:
    """Return the path of one file for all sites, or the pattern of one file per site."""
    first = files[0]
    if len(files) == 1:
        return _relative(folder, first)
    marked = re.match(rf"{key}[-_. ]*", first.stem, re.IGNORECASE)
    if tables and marked:  # test_north.csv, test_south.csv
        beside = _relative(folder, first.parent / f"{marked[0]}*{first.suffix}")
        if set(files) <= set(folder.glob(beside)):
            return beside
    pattern, _ = _pattern(folder, files, tables)  # test/north.csv or north/test.csv, and the same of other sites
    return pattern if "*" in pattern else _relative(folder, first.parent / f"*{first.suffix}")


def _relative(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()
