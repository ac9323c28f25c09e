"""Arguments that every call checks in the same way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from imperfed.core.errors import DataError, UsageError
from imperfed.data.files.cells import word

SiteName = str | int
"""What a caller may call a site: a column of sites may hold numbers, whose text is the name."""


def as_path(value: Any, argument: str) -> Path:
    """Return a path; refuse any other value."""
    if not isinstance(value, str | os.PathLike):
        raise UsageError(f"{argument}: expected a path; got a value of type {type(value).__name__}")
    return Path(value)


def as_present(folder: Path) -> Path:
    """Return the folder of a result; refuse one that is not there, such as one that is looked for from elsewhere."""
    if not folder.exists():
        where = "" if folder.is_absolute() else f" in {Path.cwd()}"
        raise DataError(
            f"{folder}: no such folder{where}; go back to where it was written, or load it from its new place"
        )
    return folder


def as_site(value: SiteName) -> str:
    """Return the name of a site as results have it, so that site 0 is "0"; "" is no site in particular."""
    return value if isinstance(value, str) else word(value)
