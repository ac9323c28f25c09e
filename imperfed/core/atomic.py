"""Atomic writes of files and folders: a crash never damages what was there before; a full disk is said to be full."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from imperfed.core.errors import DiskFullError, UsageError

FULL = (errno.ENOSPC, errno.EDQUOT)
IN_WORDS = os.strerror(errno.ENOSPC)
"""How libraries that raise errors of their own quote the system's."""


def write_whole(path: Path, write: Callable[[Path], object], writer: str = "") -> Path:
    """Write a hidden file next to the path, then rename it into place; one left by a crash is overwritten.

    Where several processes may write the same path at the same time, each gives its own name as `writer`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}{writer and '.'}{writer}.partly")
    try:
        with saying_if_full(path):
            write(partial)
            partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path


@contextmanager
def saying_if_full(path: Path) -> Iterator[None]:
    """Turn any error of a full disk into one that names the file; libraries may raise it without."""
    try:
        yield
    except DiskFullError:
        raise
    except Exception as error:
        if (isinstance(error, OSError) and error.errno in FULL) or IN_WORDS in str(error):
            named = getattr(error, "filename", None) or path
            raise DiskFullError(f"{named}: cannot be written, the disk is full") from error
        raise


def write_durably(path: Path, write: Callable[[Path], object]) -> None:
    """Write as `write_whole` does, and flush to disk first, so that the file also survives if the machine stops."""

    def flushed(partial: Path) -> None:
        write(partial)
        _flush(partial)

    write_whole(path, flushed)
    _flush(path.parent)  # the renaming itself


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield a folder that appears under its name when it is complete, and not at all after an error."""
    partial = out.with_name(f".{out.name}.partly")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"cannot write to {out} ({error.strerror}); choose another folder with --out") from error
    try:
        yield partial
        partial.replace(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Append lines to a text file; a last line that a crash cut short is ended first."""
    with saying_if_full(path), path.open("ab+") as f:
        if f.tell():
            f.seek(-1, os.SEEK_END)
            if f.read() != b"\n":
                f.write(b"\n")
        f.write("".join(f"{line}\n" for line in lines).encode())
