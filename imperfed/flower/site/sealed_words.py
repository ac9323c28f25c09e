"""Small JSON files of a site's state, with a checksum: a bit that changes on disk is noticed when the file is read."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TypeVar

import msgspec

from imperfed.core.atomic import write_durably
from imperfed.core.errors import DataError

Kept = TypeVar("Kept")
MARK = b'"kept":'


class SealedWords(msgspec.Struct, frozen=True):
    """What a file holds, and the checksum of its text. It is against faults, not against forgery."""

    crc32: str
    kept: msgspec.Raw


def write_sealed(path: Path, value: object) -> None:
    """Write a value as JSON with its checksum, completely or not at all."""
    text = msgspec.json.encode(value)
    content = msgspec.json.encode(SealedWords(checksum_of(text), msgspec.Raw(text)))
    write_durably(path, lambda partly: partly.write_bytes(content))


def read_sealed(path: Path, kind: type[Kept]) -> Kept | None:
    """Return the value in a file; None if there is no file. Files of older versions have no checksum."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        if MARK in content:
            sealed = msgspec.json.decode(content, type=SealedWords)
            content = bytes(sealed.kept)
            if sealed.crc32 != checksum_of(content):
                raise ValueError("damaged: its checksum is wrong")
        return msgspec.json.decode(content, type=kind)
    except (ValueError, msgspec.MsgspecError) as error:
        raise DataError(
            f"{path}: not readable ({error}); put a copy of it back, or join with another --state"
        ) from error


def checksum_of(text: bytes) -> str:
    """Return the checksum of a text."""
    return f"{zlib.crc32(text):08x}"
