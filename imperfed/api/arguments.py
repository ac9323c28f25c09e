"""Arguments that every call checks in the same way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from imperfed.core.errors import UsageError


def as_path(value: Any, argument: str) -> Path:
    """Return a path; refuse any other value."""
    if not isinstance(value, str | os.PathLike):
        raise UsageError(f"{argument}: expected a path; got a value of type {type(value).__name__}")
    return Path(value)
