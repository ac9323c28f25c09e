"""The sites' cards as they were when a run began, kept with its checkpoint: a run goes on with the same scale."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from imperfed.core.atomic import durably
from imperfed.core.batch import Tree
from imperfed.data.site_files import SiteInfo
from imperfed.flower.messages.payload import Payload
from imperfed.flower.messages.run_info import info_from, info_payload
from imperfed.flower.site.store import Store

TENSORS = "cards"


def write_cards(path: Path, infos: Sequence[SiteInfo]) -> None:
    """Keep the cards below a folder; the words last, so that they are there only if all is."""
    payloads = [info_payload(info) for info in infos]
    tree = {
        f"{k}/{part}/{name}": t
        for k, payload in enumerate(payloads)
        for part, tensors in payload.trees.items()
        for name, t in tensors.items()
    }
    Store(path).keep(TENSORS, tree)
    words = json.dumps([dict(payload.words) for payload in payloads], indent=2)
    durably(path / "cards.json", lambda partly: partly.write_text(words, encoding="utf-8"))


def read_cards(path: Path) -> dict[str, SiteInfo]:
    """The cards by the sites' names; none where the run has not begun."""
    words = path / "cards.json"
    if not words.exists():
        return {}
    kept = Store(path).kept(TENSORS) or {}
    infos = (
        info_from(Payload(said, {part: _part(kept, f"{k}/{part}/") for part in ("sums", "annotated")}))
        for k, said in enumerate(json.loads(words.read_text(encoding="utf-8")))
    )
    return {info.name: info for info in infos}


def _part(kept: Tree, prefix: str) -> Tree:
    return {name.removeprefix(prefix): t for name, t in kept.items() if name.startswith(prefix)}
