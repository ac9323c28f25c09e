"""Files of tensors with a checksum: a bit that changes on disk is noticed when the file is read."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

import torch

from imperfed.core.batch import Tree
from imperfed.core.errors import DataError

CHECKSUM = "crc32"
"""The name of the checksum among the words of a file. It is against faults, not against forgery."""


def sealed(tree: Tree, words: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the words of a file with the checksum of its tensors and words."""
    words = dict(words or {})
    return words | {CHECKSUM: checksum(tree, words)}


def checksum(tree: Tree, words: Mapping[str, str]) -> str:
    """Return the checksum of names, types, shapes, numbers and words; about a second per gigabyte."""
    forms = [(name, str(t.dtype), list(t.shape)) for name, t in sorted(tree.items())]
    total = zlib.crc32(json.dumps([forms, sorted(words.items())]).encode())
    for _, t in sorted(tree.items()):
        if t.numel():
            total = zlib.crc32(t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data, total)
    return f"{total:08x}"


def read_tensors(path: Path, what: str) -> tuple[Tree, dict[str, str]]:
    """Return the tensors and words of a file, whose checksum is not looked at; `what`: what the file should be."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as f:
            tree = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118 (it is not a mapping)
            return tree, f.metadata() or {}
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable {what} ({error})") from error


def check_seal(path: Path, what: str, tree: Tree, words: Mapping[str, str]) -> None:
    """Raise `DataError` with the name of the file if what was read is not what was written."""
    if words.get(CHECKSUM) != checksum(tree, {name: word for name, word in words.items() if name != CHECKSUM}):
        raise DataError(f"{path}: not a readable {what} (damaged: its checksum is wrong)")
