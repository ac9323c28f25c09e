"""What the hooks of algorithms, objectives, defences and repairs are given, at a site and at the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from imperfed.core.batch import Batch, Tree
from imperfed.core.errors import UsageError
from imperfed.core.federation import Attribute, Trusted
from imperfed.core.labels import Labels
from imperfed.core.network import Layout, Net
from imperfed.core.objective import Objective
from imperfed.core.rates import Rate

SLICE = 256
"""Rows per forward pass of a full gradient."""
AT_ONCE, MOST = 1 << 20, 1 << 13
"""On a GPU: the input numbers, and the most rows, of such a pass where it computes every row by itself."""


def rows_at_once(x: Tensor, least: int = SLICE) -> int:
    """Return how many rows a network is given in one pass, where it computes every row by itself.

    A GPU takes about as long for a few rows as for many; a CPU's caches hold few.
    """
    if x.device.type == "cpu":
        return least
    return max(least, min(MOST, AT_ONCE // max(1, x.shape[1:].numel())))


@dataclass(frozen=True)
class SiteSetup:
    """What an algorithm knows about a site when it sets up the site's memory."""

    index: int
    n: int
    labels: Labels
    layout: Layout


class Optimizer(Protocol):
    """What replaces SGD with momentum in `Algorithm.move`."""

    def init(self, w: Tensor) -> Tree:
        """Return the optimizer's state before its first step."""

    def move(self, g: Tensor, step: LocalStep) -> None:
        """Make a step along g: change `step.w`, and `step.opt_state` in place."""


@dataclass
class LocalStep:
    """One local step: everything it may read, and `w` and `opt_state`, which it changes in place."""

    net: Net
    batch: Batch
    down: Tree
    memory: Tree
    opt_state: Tree
    lr: Rate
    """A tensor in a captured program whose rate changes between rounds: subtract lr g by `core.rates.descend`."""
    momentum: float
    weight_decay: float
    """What is added to the gradient; AdamW's weight decay is not."""
    clip: float = 0.0
    """The largest L2 norm of the gradient, before weight decay; 0: any."""
    optimizer: Optimizer | None = None
    """None: SGD with momentum."""

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
    """The learning rate of these steps."""


@dataclass(frozen=True)
class SiteView:
    """A site's own rows, what it has received, and what it remembers and never sends."""

    index: int
    x: Tensor
    labels: Any
    down: Tree
    memory: Tree
    """In a repair, an answer may add to it; the site keeps it until the repair ends."""


@dataclass(frozen=True)
class SiteContext(SiteView):
    """A site with its network at the weights it received: to answer a query, or before it trains."""

    net: Net
    objective: Objective
    rows: Tree
    batch: Batch
    """One batch drawn as for training."""
    shared_key: bytes
    """Known to all sites and not to the server."""
    steps: int
    """The number of local steps in a round of training."""
    weight_decay: float = 0.0
    """The weight decay of these steps."""

    def all_rows(self) -> Batch:
        """Return all rows of the site as one batch."""
        return Batch.of(self.x, self.labels, self.x.new_ones(len(self.x)), self.rows, {}, self.batch.site_stats)

    def slices(self) -> Iterator[Batch]:
        """Yield all rows of the site in batches of nearly equal size, to save memory."""
        n = len(self.x)
        by_rows = self.objective.row_independent and not self.net.modal
        size = rows_at_once(self.x) if by_rows else SLICE
        for at in torch.arange(n, device=self.x.device).tensor_split(-(-n // size)):
            rows = {name: t[at] for name, t in self.rows.items()}
            real, site_stats = self.x.new_ones(len(at)), self.batch.site_stats
            yield Batch.of(self.x[at], self.labels.take(at), real, rows, {}, site_stats)

    def full_gradient(self) -> Tensor:
        """Return grad f_k at the shared weights as received: the gradient of the mean loss over all rows."""
        n, total = len(self.x), torch.zeros_like(self.down["w"])
        self.net.train(True)
        for batch in self.slices():
            values, _ = self.objective.loss(self.net, batch)
            total += self.net.backward(values.sum())[: len(total)]
        self.net.train(False)
        return total / n


@dataclass(frozen=True)
class SiteVerdict:
    """A defence's judgement of one site in one round."""

    site: int
    score: float | None
    confidence: float
    """Trust in the site, 0 .. 1."""
    out: bool
    """Whether its answer was left out of the merge, or counted for less than half."""
    by: str = ""
    """Which of several defences judged; empty where the run has one."""


def no_server_rows(down: Tree) -> LocalResult:
    """Refuse to train, in place of `ServerContext.train`, where the server holds no labelled rows."""
    raise UsageError(
        "here the server trains on labelled rows of its own, but it holds none; set split.trusted, such as 0.05"
    )


@dataclass(kw_only=True)
class ServerView:
    """What the server may use while it aggregates, besides the answers."""

    classes: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    """The sites' names, in the order of their numbers."""
    trusted: Trusted | None = None
    """Labelled rows that only the server holds."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the log."""


@dataclass
class ServerContext(ServerView):
    """What the server may use in a round: also the network, public inputs and random numbers."""

    net: Net
    public: Tensor
    round: int
    lr: float
    draw: torch.Generator
    train: Callable[[Tree], LocalResult] = no_server_rows
    """Makes as many of the algorithm's local steps on the trusted rows as a site makes on average, from a `down`."""
    attribute: Attribute | None = None
    lr_change: float = 1.0
    """The learning rate of the next round, divided by `lr`, that of this round."""
    left_out: tuple[int, ...] = ()
    """The sites whose answers a defence keeps out of this merge."""
    verdicts: list[SiteVerdict] = field(default_factory=list)

    def record_verdict(self, site: int, score: float | None, confidence: float, out: bool) -> None:
        """Record a defence's judgement of one site in this round; a score of None is undefined."""
        self.verdicts.append(SiteVerdict(site, score, confidence, out))
