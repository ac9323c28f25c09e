"""A built-in dataset on disk: its files, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from imperfed.data.dataset import Dataset
from imperfed.data.stored_files import differing


@dataclass(frozen=True)
class Source:
    """A built-in dataset on disk."""

    name: str
    title: str
    read: Callable[[Path], Dataset]
    origin: str
    """Where to get a missing file, and its licence, in words."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Path in the data folder -> SHA-256 of the contents, decompressed first if gzipped, however that was done."""
    any_of: tuple[str, ...] = ()
    """Paths of which one is enough; all other `files` are required."""

    def missing(self, folder: Path) -> list[str]:
        """Return the required files that are not in the data folder."""
        needed = [path for path in self.files if path not in self.any_of and not (folder / path).exists()]
        return needed + ([] if any((folder / path).exists() for path in self.any_of) else [*self.any_of])

    def present(self, folder: Path) -> bool:
        """Return whether the dataset can be read from this data folder."""
        return not self.missing(folder)

    def verify(self, folder: Path) -> list[str]:
        """Return the files in the data folder whose checksums are wrong."""
        return differing(self.files, folder)
