"""What is exchanged before training: what a site holds, and what the run is."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import cast

from imperfed.core.batch import Tree
from imperfed.core.labels import KINDS
from imperfed.data.scale import Scale
from imperfed.data.site_description import SiteInfo
from imperfed.experiments.config import Config
from imperfed.experiments.resolving import resolve
from imperfed.flower.messages.payload import Payload, RefusedError, Word

NO_TRIAL = -1
"""In place of a trial's number: the message is about the run itself."""
TRIAL = "trial "
"""How the subject of a message about a trial begins."""
REPAIR_SUBJECT = "repair, "
"""How the subject of a message of a repair begins."""


@dataclass(frozen=True)
class RunInfo:
    """What one site needs to know about a run. Every message carries it, so that a restarted site needs no other."""

    run: str
    """The name of the run; a site keeps its states under this name."""
    settings: str
    """All settings, as in `config.toml`."""
    declaration: str
    """How the sites' files are to be read; empty where no declaration is needed."""
    index: int
    """The number of the site."""
    scale: Scale
    annotated: Tree
    """Which classes any site annotates, where labels may be missing."""
    trial: int = NO_TRIAL
    """The number of the trial in the search of `auto` that the message is about."""
    alive: tuple[int, ...] = ()
    """In a search, the trials that may go on; a site removes the states of all others."""
    search: bool = False
    """Whether the run is a search, in which settings change from trial to trial."""

    def about(self, what: str) -> str:
        """Return the subject of a message, for the logs."""
        return what if self.trial == NO_TRIAL else f"{TRIAL}{self.trial + 1}, {what}"

    def config(self) -> Config:
        """Return the settings, typed."""
        return resolve(tomllib.loads(self.settings))

    def payload(self, words: dict[str, Word] | None = None, trees: dict[str, Tree] | None = None) -> Payload:
        """Return a message of this run."""
        own: dict[str, Word] = {
            "run": self.run,
            "settings": self.settings,
            "declaration": self.declaration,
            "index": self.index,
        }
        if self.trial != NO_TRIAL:
            own |= {"trial": self.trial, "alive": list(self.alive)}
        if self.search:
            own["search"] = 1
        return Payload(own | (words or {}), {"scale": self.scale.tree(), "annotated": self.annotated} | (trees or {}))

    @classmethod
    def of(cls, payload: Payload) -> RunInfo:
        """Read it from a message."""
        return cls(
            payload.text("run"),
            payload.text("settings"),
            payload.text("declaration"),
            payload.number("index"),
            Scale.of_tree(payload.trees.get("scale", {})),
            payload.trees.get("annotated", {}),
            payload.number("trial") if "trial" in payload.words else NO_TRIAL,
            tuple(map(int, payload.several("alive"))) if "trial" in payload.words else (),
            "search" in payload.words,
        )


def other_rows(name: str, before: int, now: int) -> str:
    """Return that a site has come back with other rows than those with which it took part, and what to do."""
    changed = f"{now} other rows" if before == now else f"{now} rows"
    return f"{name} began this run with {before} rows, and now has {changed}: put the file back, or start another run"


def info_payload(info: SiteInfo) -> Payload:
    """Return what a site holds as a message."""
    words: dict[str, Word] = {
        "name": info.name,
        "rows": info.rows,
        "kind": info.kind,
        "classes": list(info.classes),
        "shape": list(info.shape),
        "features": info.features,
        "tests": info.tests,
        "several": int(info.several),
        "held out": info.held_out,
        "digest": info.digest,
    }
    return Payload(words, {"sums": info.sums, "annotated": info.annotated})


def info_from(payload: Payload) -> SiteInfo:
    """Return what a site holds, from its message."""
    if payload.text("kind") not in KINDS:
        raise RefusedError(f"{payload.text('kind')!r} is not a kind of labels")
    if not all(type(name) is str for name in payload.several("classes")):
        raise RefusedError("its classes are not names")
    return SiteInfo(
        payload.text("name"),
        payload.number("rows"),
        payload.text("kind"),
        tuple(cast(list[str], payload.several("classes"))),
        tuple(cast(list[int], payload.several("shape"))),
        payload.number("features"),
        payload.number("tests"),
        bool(payload.number("several")),
        payload.trees.get("sums", {}),
        payload.trees.get("annotated", {}),
        payload.number("held out"),
        payload.text("digest"),
    )
