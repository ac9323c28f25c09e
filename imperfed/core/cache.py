"""The user's cache folder, whose contents may be deleted at any time."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imperfed.core.atomic import write_whole

if TYPE_CHECKING:  # the command line looks for its cache before it imports anything heavy
    import numpy.typing as npt


def cache_folder(part: str = "") -> Path:
    """Return the folder of a part of the cache: `$XDG_CACHE_HOME/imperfed/<part>`, or else below `~/.cache`."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "imperfed" / part


def keep(path: Path, array: npt.NDArray[Any]) -> bool:
    """Write an array completely or not at all; return whether it was written. Without a cache, only time is lost."""

    import numpy as np

    def save(partial: Path) -> None:
        with partial.open("wb") as file:  # given a path, numpy would append its own extension
            np.save(file, array)

    with suppress(OSError):
        write_whole(path, save, writer=str(os.getpid()))
        return True
    return False
