"""The user's cache folder: whatever lies there may be deleted at any time."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(part: str = "") -> Path:
    """Return the folder of a part of the cache: `$XDG_CACHE_HOME/imperfed/<part>`, or else below `~/.cache`."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "imperfed" / part
