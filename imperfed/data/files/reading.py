"""The sites of a declaration, read from their files.

    declaration = read_declaration("clinics")
    reading = read_sites(declaration)       every site that can be read, and all problems of those that cannot
    reading.check()                         one error that lists the problems

Tables in memory: `read_sites(declaration, {"data['north']": table})`, by the names that the declaration has for paths.

One site alone, with a declaration received from elsewhere: `read_site("north", Path("north.csv"), None, parse(text))`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import numpy as np

from imperfed.data.files.cells import codes_of, word
from imperfed.data.files.declaration import Declaration, Places
from imperfed.data.files.labelled import scattered_columns
from imperfed.data.files.memory import MemoryTable, Source
from imperfed.data.files.problems import Problems, shown
from imperfed.data.files.rows import CLEAN, PUBLIC, SITE, FileRows, read_rows
from imperfed.data.files.site_names import name_trouble
from imperfed.data.files.table import FileTable
from imperfed.data.files.undeclared import UndeclaredText
from imperfed.data.lazy.decoded import share_room

Tables = Mapping[str, MemoryTable]
GIGABYTE = 10**9
NO_TEST = "add it, or leave `test` out, and a share of every site's rows is held out"
NO_TABLES: Tables = {}
AlreadyRead = Mapping[Source, UndeclaredText]
NOTHING_READ: AlreadyRead = {}


@dataclass(frozen=True)
class SiteReading:
    """What one site holds."""

    name: str
    rows: FileRows
    test: FileRows | None = None


@dataclass(frozen=True)
class Reading:
    """Everything that a declaration names and that could be read, and what is wrong with the rest."""

    declaration: Declaration
    sites: tuple[SiteReading, ...] = ()
    test: FileRows | None = None
    """One test file for all sites."""
    public: FileRows | None = None
    trusted: FileRows | None = None
    problems: Problems = field(default_factory=Problems)

    def check(self) -> Reading:
        """Return the reading itself, or raise one `DataError` with all problems."""
        self.problems.check(self.declaration.name)
        return self


def read_sites(declaration: Declaration, tables: Tables = NO_TABLES, before: AlreadyRead = NOTHING_READ) -> Reading:
    """Read every file of a declaration.

    `tables`: those in memory, by what the declaration says instead of a path. `before`: files that were read already.
    """
    problems = Problems()
    files, tests, common = _files(declaration, tables, problems)
    held = dict(_held(files, declaration, before, problems))
    _note_nowhere([rows.table for rows in held.values()], declaration, problems)
    clean = {name: read_rows(path, declaration, CLEAN, problems, name) for name, path in tests.items()}
    _note_unlike(held if declaration.site_column else files, tests, declaration, problems)
    sites = tuple(SiteReading(name, rows, clean.get(name)) for name, rows in held.items())
    test, public, trusted = _server_parts(declaration, common, tables, problems)
    parts = [rows for rows in (*held.values(), *clean.values(), test, public, trusted) if rows is not None]
    _note_shapes(parts, problems)
    _keep_decoded(parts, declaration, problems)
    return Reading(declaration, sites, test, public, trusted, problems)


def read_server(declaration: Declaration) -> Reading:
    """Read the files that belong to no site; one `DataError` lists all problems."""
    problems = Problems()
    common = declaration.test if isinstance(declaration.test, str) and "*" not in declaration.test else ""
    parts = _server_parts(declaration, common, NO_TABLES, problems)
    _keep_decoded([rows for rows in parts if rows is not None], declaration, problems)
    return Reading(declaration, (), *parts, problems).check()


def _server_parts(
    declaration: Declaration, common: str, tables: Tables, problems: Problems
) -> tuple[FileRows | None, FileRows | None, FileRows | None]:
    """Read the common test file, the public inputs and the trusted rows, as far as they are declared."""
    files = ((common, CLEAN), (declaration.public, PUBLIC), (declaration.trusted, CLEAN))
    test, public, trusted = (
        read_rows(tables.get(path, declaration.folder / path), declaration, use, problems) if path else None
        for path, use in files
    )
    return test, public, trusted


def read_site(name: str, path: Path, test: Path | None, declaration: Declaration) -> SiteReading:
    """Read the files of one site, with a declaration from anywhere; one `DataError` lists all problems."""
    problems = Problems()
    rows = read_rows(path, declaration, SITE, problems, name)
    clean = read_rows(test, declaration, CLEAN, problems, name) if test else None
    problems.check(str(path))
    assert rows is not None
    _keep_decoded([rows] if clean is None else [rows, clean], declaration, problems)
    return SiteReading(name, rows, clean)


def places(where: Places, folder: Path) -> dict[str, Path]:
    """Return the files of a declared path by site name, which is what `*` stands for; "" for a single path."""
    if isinstance(where, Mapping):
        return {name: folder / path for name, path in where.items()}
    if "*" not in where:
        return {"": folder / where}
    pattern = PurePath(where)
    root = folder / pattern.anchor
    pattern = pattern.relative_to(pattern.anchor)
    before, after = pattern.as_posix().split("*")
    files = {}
    for path in sorted(root.glob(str(pattern))):
        name = path.relative_to(root).as_posix().removeprefix(before)
        name = name.removesuffix(after) if after or path.is_dir() else PurePath(name).stem
        if not name.startswith("."):
            files[name] = path
    return files


def _files(
    declaration: Declaration, tables: Tables, problems: Problems
) -> tuple[dict[str, Source], dict[str, Source], str]:
    """Return the files of the sites, the test files of the sites, and the common test file."""
    where: Places = declaration.test
    common = where if isinstance(where, str) and "*" not in where else ""
    where = {} if common or not where else where
    files, tests = (_sources(part, declaration.folder, tables) for part in (declaration.sites, where))
    for key, declared, paths in (("sites", declaration.sites, files), ("test", where, tests)):
        if declared and not paths:
            problems.add(declaration.file, None, key, "no file", f"files at {declared}", "fix the path")
    return files, tests, common


def _sources(where: Places, folder: Path, tables: Tables) -> dict[str, Source]:
    """Return the files of a declared path, or the tables in memory that are named instead of paths."""
    if tables and where:
        named = where if isinstance(where, Mapping) else {"": where}
        return {name: tables[path] for name, path in named.items()}
    return {**places(where, folder)}


def _held(
    files: Mapping[str, Source], declaration: Declaration, before: AlreadyRead, problems: Problems
) -> Iterator[tuple[str, FileRows]]:
    """Yield the name and rows of every site that can be read."""
    for name, path in files.items():
        if name and (trouble := name_trouble(name)):
            problems.add(path, None, None, trouble, "a site name that is valid as a file name", "rename it")
        rows = read_rows(path, declaration, SITE, problems, name, before.get(path))
        if rows is not None:
            yield from _by_column(rows, declaration.site_column) if declaration.site_column else [(name, rows)]


def _by_column(rows: FileRows, column: str) -> Iterator[tuple[str, FileRows]]:
    """Yield the sites of one file, in the order of their names."""
    coded = codes_of(rows.table, column, Problems())
    assert coded is not None  # checked when the rows were read
    codes, values = coded
    names, site = np.unique([word(value) for value in values], return_inverse=True)
    of_row = site[codes]
    ends = np.bincount(of_row, minlength=len(names)).cumsum()
    for name, held in zip(names.tolist(), np.split(np.argsort(of_row, kind="stable"), ends[:-1]), strict=True):
        if len(held):
            yield name, rows.take(held)


def _note_nowhere(tables: list[FileTable], declaration: Declaration, problems: Problems) -> None:
    """Note label columns that no site has, if all sites could be read."""
    key = "labels.columns" if declaration.labels.columns else "labels.classes"
    for column in scattered_columns(declaration.labels) if not problems else ():
        if not any(column in table.columns for table in tables):
            found, expected = f"{shown(column)}, which no file has", "a column of at least one site"
            problems.add(declaration.file, None, key, found, expected, "fix the name, or leave the class out")


def _note_unlike(
    sites: Mapping[str, object], tests: Mapping[str, Source], declaration: Declaration, problems: Problems
) -> None:
    """Note sites without a test file if others have one, and test files that belong to no site."""
    for name in sites if tests else ():
        if name not in tests:
            problems.add(declaration.file, None, "test", f"no test file for {name}", "one for every site", NO_TEST)
    for name, path in tests.items():
        if name not in sites:
            problems.add(path, None, None, "a test file of no site", "a site of this name", "rename or remove it")


def _keep_decoded(parts: list[FileRows], declaration: Declaration, problems: Problems) -> None:
    """Let lazy inputs keep on disk what they decode, unless something is wrong anyway."""
    if not problems:
        share_room([rows.x for rows in parts], declaration.inputs.cache * GIGABYTE)


def _note_shapes(parts: list[FileRows], problems: Problems) -> None:
    """Note inputs whose shape differs from those of the first file. Sparse rows may have any length."""
    for rows in parts[1:]:
        first, shape = tuple(parts[0].x.shape[1:]), tuple(rows.x.shape[1:])
        if shape != first and not rows.sparse:
            expected = f"{first} as in {parts[0].table.file}"
            problems.add(rows.table.file, None, None, f"inputs of shape {shape}", expected, "use one shape")
