"""The sites' cards as they were when a run began, kept with its checkpoint: a run goes on with the same scale."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from imperfed.core import Tree
from imperfed.data.holding import Card
from imperfed.disk import durably
from imperfed.flower.charter import card_letter, card_of
from imperfed.flower.store import Store
from imperfed.flower.wire import Letter

TENSORS = "cards"


def write_cards(path: Path, cards: Sequence[Card]) -> None:
    """Keep the cards below a folder; the words last, so that they are there only if all is."""
    letters = [card_letter(card) for card in cards]
    tree = {
        f"{k}/{part}/{name}": t
        for k, letter in enumerate(letters)
        for part, tensors in letter.trees.items()
        for name, t in tensors.items()
    }
    Store(path).keep(TENSORS, tree)
    words = json.dumps([dict(letter.words) for letter in letters], indent=2)
    durably(path / "cards.json", lambda partly: partly.write_text(words, encoding="utf-8"))


def read_cards(path: Path) -> dict[str, Card]:
    """The cards by the sites' names; none where the run has not begun."""
    words = path / "cards.json"
    if not words.exists():
        return {}
    kept = Store(path).kept(TENSORS) or {}
    cards = (
        card_of(Letter(said, {part: _part(kept, f"{k}/{part}/") for part in ("sums", "annotated")}))
        for k, said in enumerate(json.loads(words.read_text(encoding="utf-8")))
    )
    return {card.name: card for card in cards}


def _part(kept: Tree, prefix: str) -> Tree:
    return {name.removeprefix(prefix): t for name, t in kept.items() if name.startswith(prefix)}
