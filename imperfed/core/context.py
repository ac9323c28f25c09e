"""What an algorithm's hooks are given: at a site, and at the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from imperfed.core.batch import Batch, Tree
from imperfed.core.errors import UsageError
from imperfed.core.federation import Attribute, Trusted
from imperfed.core.labels import Labels
from imperfed.core.network import Layout, Net
from imperfed.core.objective import Objective

SLICE = 256
"""Rows that a full gradient takes at once."""


@dataclass(frozen=True)
class SiteSetup:
    """What one site sees of itself when it opens."""

    index: int
    n: int
    labels: Labels
    layout: Layout


@dataclass
class LocalStep:
    """One local step: everything it may read, and `w` and `slots`, which it moves in place."""

    net: Net
    batch: Batch
    down: Tree
    memory: Tree
    opt_state: Tree
    lr: float
    momentum: float
    weight_decay: float

    @property
    def w(self) -> Tensor:
        """The weights being trained, [shared | personal]."""
        return self.net.w


@dataclass(frozen=True)
class LocalResult:
    """A site after its last local step of a round."""

    net: Net
    opt_state: Tree
    down: Tree
    memory: Tree
    steps: int
    lr: float


@dataclass(frozen=True)
class SiteContext:
    """A site that looks at its own data, its network at the weights it received: to answer, or before it trains."""

    net: Net
    objective: Objective
    x: Tensor
    labels: Any
    rows: Tree
    down: Tree
    memory: Tree
    batch: Batch
    """One batch drawn as for training."""
    shared_key: bytes
    """Known to all sites and not to the server."""
    steps: int
    """Local steps that the site makes in a round of training."""
    weight_decay: float = 0.0
    """Of these steps."""

    def all_rows(self) -> Batch:
        """All rows of the site as one batch."""
        return Batch.of(self.x, self.labels, self.x.new_ones(len(self.x)), self.rows, {}, self.batch.site_stats)

    def slices(self) -> Iterator[Batch]:
        """All rows of the site in batches of nearly one size, which save memory."""
        n = len(self.x)
        for at in torch.arange(n, device=self.x.device).tensor_split(-(-n // SLICE)):
            rows = {name: t[at] for name, t in self.rows.items()}
            real, survey = self.x.new_ones(len(at)), self.batch.site_stats
            yield Batch.of(self.x[at], self.labels.take(at), real, rows, {}, survey)

    def full_gradient(self) -> Tensor:
        """grad f_k of the shared weights as received: the mean loss over all rows, taken in slices to save memory."""
        n, total = len(self.x), torch.zeros_like(self.down["w"])
        self.net.train(True)
        for batch in self.slices():
            values, _ = self.objective.loss(self.net, batch)
            total += self.net.backward(values.sum())[: len(total)]
        self.net.train(False)
        return total / n


def no_server_rows(down: Tree) -> LocalResult:
    """What `Hall.train` is where the server holds no labelled rows."""
    raise UsageError("the server trains on labelled rows of its own here and holds none; set split.trusted, as 0.05")


@dataclass
class ServerContext:
    """What the server may use while it merges, besides the answers."""

    net: Net
    public: Tensor
    round: int
    lr: float
    draw: torch.Generator
    notes: list[str] = field(default_factory=list)
    """Sentences for the log."""
    trusted: Trusted | None = None
    train: Callable[[Tree], LocalResult] = no_server_rows
    """The algorithm's own local steps on the trusted rows, as many as a site makes, from what is given as `down`."""
    classes: tuple[str, ...] = ()
    attribute: Attribute | None = None
    sites: tuple[str, ...] = ()
    """The sites' names, by their numbers."""
    left_out: tuple[int, ...] = ()
    """The sites that answered and whose answers a defence keeps from this merge."""
    verdicts: list[SiteVerdict] = field(default_factory=list)

    def record_verdict(self, site: int, score: float | None, confidence: float, out: bool) -> None:
        """Record what a defence thinks of one site in this round; a score of None is undefined."""
        self.verdicts.append(SiteVerdict(site, score, confidence, out))


@dataclass(frozen=True)
class SiteVerdict:
    """What a defence thinks of one site in one round."""

    site: int
    score: float | None
    confidence: float
    """Trust in the site, 0 .. 1."""
    out: bool
    """Whether its answer was left out of the merge."""
