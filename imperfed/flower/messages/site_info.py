"""What the sites held when a run began, kept with its checkpoint: a resumed run has the same scale."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from imperfed.core.atomic import write_durably
from imperfed.core.batch import Tree
from imperfed.core.errors import DataError
from imperfed.core.tensor_files import CHECKSUM, checksum
from imperfed.data.site_description import SiteInfo
from imperfed.flower.messages.payload import Payload, Word
from imperfed.flower.messages.run_info import info_from, info_payload
from imperfed.flower.site.store import Store

NAME = "sites"
WORDS, TENSORS = f"{NAME}.json", NAME
"""The file of words, and the name under which the store keeps the tensors."""


def write_site_infos(path: Path, infos: Sequence[SiteInfo]) -> None:
    """Write what the sites hold to a folder; the words last, so that they exist only if the tensors do."""
    payloads = [info_payload(info) for info in infos]
    tree = {
        f"{k}/{part}/{name}": t
        for k, payload in enumerate(payloads)
        for part, tensors in payload.trees.items()
        for name, t in tensors.items()
    }
    Store(path).keep(TENSORS, tree)
    sites = [dict(payload.words) for payload in payloads]
    words = json.dumps({"sites": sites, CHECKSUM: _checksum(sites)}, indent=2)
    write_durably(path / WORDS, lambda partly: partly.write_text(words, encoding="utf-8"))


def read_site_infos(path: Path) -> dict[str, SiteInfo]:
    """Return what the sites held, by name; empty where the run has not begun."""
    file = path / WORDS
    if not file.exists():
        return {}
    kept = Store(path).kept(TENSORS) or {}
    infos = (
        info_from(Payload(words, {part: _part(kept, f"{k}/{part}/") for part in ("sums", "annotated")}))
        for k, words in enumerate(_checked_words(file))
    )
    return {info.name: info for info in infos}


def _checked_words(file: Path) -> list[dict[str, Word]]:
    """Return the words about each site; raise `DataError` if they are not those that were written."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        sites: list[dict[str, Word]] = kept["sites"]
        if kept[CHECKSUM] != _checksum(sites):
            raise ValueError("damaged: its checksum is wrong")
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}: not a readable record of what the sites reported ({error})") from error
    return sites


def _checksum(sites: Sequence[object]) -> str:
    return checksum({}, {NAME: json.dumps(sites)})


def _part(kept: Tree, prefix: str) -> Tree:
    return {name.removeprefix(prefix): t for name, t in kept.items() if name.startswith(prefix)}
