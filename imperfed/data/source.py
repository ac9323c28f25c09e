"""A built-in dataset on disk: which files it is read from, where they are looked for, and where they come from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from imperfed.core.cache import cache_folder
from imperfed.core.errors import DataError
from imperfed.data import readers
from imperfed.data.dataset import Dataset


@dataclass(frozen=True)
class Source:
    """A built-in dataset on disk."""

    name: str
    title: str
    read: Callable[[Path], Dataset]
    origin: str
    """Where a missing file comes from, and its licence, in words."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Path in the data folder -> SHA-256 of the contents, unpacked where gzipped: how it was packed does not matter."""
    any_of: tuple[str, ...] = ()
    """Paths of which one is enough; all other `files` are needed."""

    def missing(self, folder: Path) -> list[str]:
        """What is looked for in the data folder and not there."""
        needed = [path for path in self.files if path not in self.any_of and not (folder / path).exists()]
        return needed + ([] if any((folder / path).exists() for path in self.any_of) else [*self.any_of])

    def present(self, folder: Path) -> bool:
        """Whether the dataset can be read from this data folder."""
        return not self.missing(folder)

    def verify(self, folder: Path) -> list[str]:
        """The files in the data folder whose contents are not the known ones."""
        there = [path for path in self.files if (folder / path).exists()]
        return [path for path in there if _digest(folder / path) != self.files[path]]


def data_folder() -> Path:
    """Return `$IMPERFED_DATA`, or else `imperfed` in the user's cache folder."""
    own = os.environ.get("IMPERFED_DATA")
    return Path(own).expanduser() if own else cache_folder()


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(readers.contents(path)).hexdigest()
    except DataError:
        return "unreadable"
