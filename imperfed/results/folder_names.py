"""The names of new folders."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path


def unused_path(out: Path, name: str, digest: str) -> Path:
    """Return a path below `out` that does not exist yet."""
    stem = f"{name}-{datetime.now():%Y%m%d-%H%M%S}-{digest}"
    path, number = out / stem, 1
    while path.exists():
        number += 1
        path = out / f"{stem}-{number}"
    return path


def created_folder(out: Path, name: str, digest: str) -> Path:
    """Create a folder below `out` that did not exist yet, and return its path; others may do so at the same moment."""
    while True:
        path = unused_path(out, name, digest)
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if not path.is_dir():  # a file stands where `out` should be
                raise
        else:
            return path
