"""The best round so far by the rows that the sites hold out, and the state that the run had then."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from imperfed.core.batch import Tree
from imperfed.core.labels.validity import UNKNOWN, Validity, mean


@dataclass
class BestRound:
    """What a run remembers about its held-out rows."""

    sites: list[Validity]
    """What each site reported last: one that is away counts with what it reported before."""
    keep: bool = True
    """Whether the state of the best round is kept."""
    round: int = 0
    """The best round, counted from 1; 0 as long as nothing is known."""
    score: float = -math.inf
    waited: int = 0
    """Evaluated rounds since then."""
    state: Tree = field(default_factory=dict)
    """A copy of everything that the run remembered after the best round."""
    written: int = 0
    """The round whose state is on disk."""
    window: int = 1
    """How many rounds, up to and with the one that is judged, its score is the mean of."""
    recent: list[float] = field(default_factory=list)
    """The scores of the last rounds, as many as the window."""
    named: tuple[int, ...] = ()
    """The best rounds that the last two checkpoints name."""

    @classmethod
    def fresh(cls, sites: int, keep: bool) -> BestRound:
        """Return what is known before the first round."""
        return cls([UNKNOWN] * sites, keep)

    def judge(self, round: int, reported: Mapping[int, Validity], state: Callable[[], Tree]) -> Validity:
        """Compare a round with the best one so far, the first of equals; return the mean over sites by weight.

        `state`: returns everything that the run remembers, asked for only after a best round.
        """
        for k, validity in reported.items():
            self.sites[k] = validity
        overall = mean(self.sites)
        if not overall.known:
            return overall
        self.recent = [*self.recent, overall.score][-self.window :]
        score = math.fsum(self.recent) / len(self.recent)
        if score > self.score:
            self.round, self.score, self.waited, self.written = round, score, 0, 0
            if self.keep:
                self.state = copied(state(), self.state)
        else:
            self.waited += 1
        return overall

    # -- on disk, beside the checkpoint --------------------------------------------------------------------------------

    def words(self) -> str:
        """Return everything but the state, as a checkpoint holds it."""
        sites = [[validity.score, validity.weight] if validity.known else None for validity in self.sites]
        words: dict[str, Any] = {"round": self.round, "score": self.score, "waited": self.waited, "sites": sites}
        return json.dumps(words)

    def read(self, words: str) -> None:
        """Restore what `words` returned; raise `ValueError` or `KeyError` if it is damaged."""
        known = json.loads(words)
        self.sites = [UNKNOWN if one is None else Validity(*one) for one in known["sites"]]
        self.round, self.score, self.waited = known["round"], known["score"], known["waited"]
        self.written, self.named = self.round, (self.round,)

    def path(self, checkpoint: Path) -> Path:
        """Return the file of the best round's state, which the checkpoint names by its round."""
        return checkpoint.with_name(file_of(self.round))

    def forget_others(self, checkpoint: Path) -> None:
        """Remove the states of rounds that neither the new checkpoint, already written, nor the one before it names."""
        self.named = (*self.named, self.round)[-2:]
        kept = {file_of(round) for round in self.named}
        for path in checkpoint.parent.glob("best-*.safetensors"):
            if path.name not in kept:
                path.unlink(missing_ok=True)


def file_of(round: int) -> str:
    """Return the name of the file of a round's state."""
    return f"best-{round:06}.safetensors"


def copied(state: Tree, into: Tree) -> Tree:
    """Return a copy in host memory, written over an earlier one if there is one."""
    if state.keys() != into.keys():
        return {name: t.detach().cpu().clone() for name, t in state.items()}
    for name, t in state.items():
        into[name].copy_(t)
    return into
