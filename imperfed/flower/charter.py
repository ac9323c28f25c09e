"""What is said before training: a site tells what it holds, the coordinator tells what the run is."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import cast

import torch

from imperfed.config import Config, resolve
from imperfed.core import Tree
from imperfed.data.holding import Card
from imperfed.data.scale import Scale
from imperfed.flower.wire import Letter, RefusedError, Word
from imperfed.labels import KINDS


@dataclass(frozen=True)
class Charter:
    """What a run is for one site. It goes with every message, so that a site that was restarted needs no other."""

    run: str
    """The name of the run; a site keeps its states under it."""
    settings: str
    """All settings, as `config.toml` has them."""
    declaration: str
    """How the sites' files are to be read; empty where that needs no saying."""
    index: int
    """The number of the site."""
    scale: Scale
    annotated: Tree
    """Which classes any site annotates, where labels may be missing."""

    def config(self) -> Config:
        """The settings, typed."""
        return resolve(tomllib.loads(self.settings))

    def letter(self, words: dict[str, Word] | None = None, trees: dict[str, Tree] | None = None) -> Letter:
        """A message of this run."""
        mine: dict[str, Word] = {
            "run": self.run,
            "settings": self.settings,
            "declaration": self.declaration,
            "index": self.index,
        }
        scale = {"mean": self.scale.mean, "spread": self.scale.spread} if len(self.scale.mean) else {}
        return Letter(mine | (words or {}), {"scale": scale, "annotated": self.annotated} | (trees or {}))

    @classmethod
    def of(cls, letter: Letter) -> Charter:
        """From a message."""
        scale = letter.trees.get("scale") or {"mean": torch.empty(0), "spread": torch.empty(0)}
        return cls(
            letter.text("run"),
            letter.text("settings"),
            letter.text("declaration"),
            letter.number("index"),
            Scale(scale["mean"], scale["spread"]),
            letter.trees.get("annotated", {}),
        )


def card_letter(card: Card) -> Letter:
    """A site's card as a message."""
    words: dict[str, Word] = {
        "name": card.name,
        "rows": card.rows,
        "kind": card.kind,
        "classes": list(card.classes),
        "shape": list(card.shape),
        "features": card.features,
        "tests": card.tests,
        "several": int(card.several),
    }
    return Letter(words, {"sums": card.sums, "annotated": card.annotated})


def card_of(letter: Letter) -> Card:
    """A site's card from its message."""
    if letter.text("kind") not in KINDS:
        raise RefusedError(f"{letter.text('kind')!r} is no kind of labels")
    return Card(
        letter.text("name"),
        letter.number("rows"),
        letter.text("kind"),
        tuple(cast(list[str], letter.several("classes"))),
        tuple(cast(list[int], letter.several("shape"))),
        letter.number("features"),
        letter.number("tests"),
        bool(letter.number("several")),
        letter.trees.get("sums", {}),
        letter.trees.get("annotated", {}),
    )
