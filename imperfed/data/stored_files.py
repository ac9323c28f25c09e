"""The data folder and the bytes of its files; nothing heavy is imported."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

from imperfed.core.cache import cache_folder
from imperfed.core.errors import DataError


def data_folder() -> Path:
    """Return `$IMPERFED_DATA`, or else `imperfed` in the user's cache folder."""
    chosen = os.environ.get("IMPERFED_DATA")
    return Path(chosen).expanduser() if chosen else cache_folder()


def existing(path: Path) -> Path:
    """Return the path itself, or raise an error if it is not a readable file with something in it."""
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if empty:
        raise DataError(f"{path}: the file is empty")
    return path


def contents(path: Path) -> bytes:
    """Return the bytes of a file, decompressed if they are gzipped, whatever the file is called."""
    raw = existing(path).read_bytes()
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path}: the gzip file is truncated or corrupt ({error}); download it again") from error


def differing(files: Mapping[str, str], folder: Path) -> list[str]:
    """Return the files in the data folder that have other contents; `files`: the SHA-256 of each."""
    present = [path for path in files if (folder / path).exists()]
    return [path for path in present if _digest(folder / path) != files[path]]


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(contents(path)).hexdigest()
    except DataError:
        return "unreadable"
