"""Which files of a folder are the sites, which are test files, and what lies there besides."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from imperfed.core.errors import DataError
from imperfed.data.files.reading import places
from imperfed.data.files.table import IMAGES

TABLES = (".csv", ".tsv", ".parquet", ".npz")
BESIDES = ("test", "public", "trusted")
"""Keys of a declaration, and first words of the names of files or folders that are meant by them."""


@dataclass(frozen=True)
class FolderLayout:
    """Where the sites lie, relative to `folder`."""

    folder: Path
    sites: str
    """A path with a `*` for the site's name, or one file for all sites."""
    others: bool
    """Whether the path with its `*` also means things that are no sites."""
    files: tuple[Path, ...]
    """The files of the sites, or their folders of images."""
    besides: dict[str, str]
    """Test files and the like, as a declaration names them."""
    images: bool
    """Whether a site is a folder of images by class."""

    def named(self) -> dict[str, Path]:
        """The files of the sites by what `*` stands for in their paths; "" names one file for all."""
        return {name: path for name, path in places(self.sites, self.folder).items() if path in self.files}


def find_layout(path: Path) -> FolderLayout:
    """The layout of a folder, or of one file that holds all sites."""
    if path.is_file():
        if path.suffix.lower() not in TABLES:
            raise DataError(f"{path}: not a table; expected a file ending in {', '.join(TABLES)}, or a folder")
        return FolderLayout(path.parent, path.name, False, (path,), {}, False)
    every = [p for p in sorted(path.rglob("*")) if not any(part.startswith(".") for part in p.relative_to(path).parts)]
    tables = [p for p in every if p.suffix.lower() in TABLES and p.is_file()]
    folders = sorted({p.parent.parent for p in every if p.suffix.lower() in IMAGES} - {path, path.parent})
    things = tables or folders
    special = {thing: key for thing in things if (key := _besides(thing.relative_to(path)))}
    sites = [thing for thing in things if thing not in special]
    if not sites:
        raise DataError(
            f"{path}: found no sites; expected a CSV, Parquet or NPZ file a site, one file for all sites, or folders "
            "<site>/<class>/ of images"
        )
    pattern, files = _pattern(path, sites, bool(tables))
    besides = {
        key: _place(path, [thing for thing, meant in special.items() if meant == key])
        for key in dict.fromkeys(special.values())
    }
    others = "*" in pattern and (pattern == "*" or set(path.glob(pattern)) != set(files))
    return FolderLayout(path, pattern, others, files, besides, not tables)


def _besides(path: Path) -> str | None:
    words = [part.lower() for part in path.parts]
    return next((key for key in BESIDES for word in words if word.startswith(key)), None)


def _pattern(folder: Path, sites: list[Path], tables: bool) -> tuple[str, tuple[Path, ...]]:
    """The path with one `*` that most of the files agree on, and those files."""
    patterns: Counter[str] = Counter()
    for site in sites:
        patterns[_relative(folder, site.parent / f"*{site.suffix if tables else ''}")] += 1
        if site.parent != folder and tables:
            patterns[_relative(folder, site.parent.parent / "*" / site.name)] += 1
    pattern, count = patterns.most_common(1)[0]
    if count == 1 and tables:  # one file for all
        return _relative(folder, sites[0]), (sites[0],)
    meant = set(folder.glob(pattern))
    return pattern, tuple(site for site in sites if site in meant)


def _place(folder: Path, files: list[Path]) -> str:
    """One file for all, or one a site."""
    if len(files) == 1:
        return _relative(folder, files[0])
    return _relative(folder, files[0].parent / f"*{files[0].suffix}")


def _relative(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()
