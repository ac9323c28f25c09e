"""How files are written, so that no crash spoils what was there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def lengthen(path: Path, lines: Iterable[str]) -> None:
    """Add lines to a text file; one that a crash cut short stays a line by itself."""
    with path.open("ab+") as f:
        if f.tell():
            f.seek(-1, os.SEEK_END)
            if f.read() != b"\n":
                f.write(b"\n")
        f.write("".join(f"{line}\n" for line in lines).encode())
