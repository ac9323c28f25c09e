"""Files of a run that may be cut short or damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from imperfed.core.errors import DataError

T = TypeVar("T")


def parse_file(path: Path, read_text: Callable[[str], T], remedy: str) -> T:
    """Read a file of a run; raise an error that ends in the remedy if it is cut short or damaged."""
    try:
        return read_text(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: cut short or damaged ({error}); {remedy}") from error
