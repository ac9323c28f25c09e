"""How files are written, so that no crash spoils what was there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path


def whole(path: Path, write: Callable[[Path], object], writer: str = "") -> Path:
    """Let `write` fill a hidden file beside the path, then put it in place; one left by a crash is written over.

    Where several processes may write the same path at the same time, each names itself as the `writer`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partly = path.with_name(f".{path.name}{writer and '.'}{writer}.partly")
    try:
        write(partly)
        partly.replace(path)
    except BaseException:
        partly.unlink(missing_ok=True)
        raise
    return path


def durably(path: Path, write: Callable[[Path], object]) -> None:
    """The same, also if the machine stops: nothing takes its place before it is on the disk."""

    def flushed(partly: Path) -> None:
        write(partly)
        _flush(partly)

    whole(path, flushed)
    _flush(path.parent)  # the new name itself


def _flush(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def lengthen(path: Path, lines: Iterable[str]) -> None:
    """Add lines to a text file; one that a crash cut short stays a line by itself."""
    with path.open("ab+") as f:
        if f.tell():
            f.seek(-1, os.SEEK_END)
            if f.read() != b"\n":
                f.write(b"\n")
        f.write("".join(f"{line}\n" for line in lines).encode())
