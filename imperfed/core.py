"""The contract between an algorithm and the engine that runs it.

An algorithm says what a site does in one local step and what the server does with the answers. The engine owns loops,
batches, devices, seeds, messages and checkpoints. All memory is in flat dictionaries of named tensors (`Tree`):

    server    what the server remembers                          "w": shared weights [S], "buffers": shared buffers
    down      what a site receives                               the server's "w", "buffers" and what `send` adds
    up        what a site answers                                "w", "buffers" and what `reply` adds
    memory    what a site remembers and never sends              opened by `Algorithm.open`
    rows      what a site remembers of each of its examples      opened by `Objective.open`

A local step keeps fixed shapes and never waits for the host: no `.item()`, no boolean indexing, no branch on a tensor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from imperfed.errors import UsageError
from imperfed.federation import Attribute, Trusted
from imperfed.labels import Labels
from imperfed.network import Layout, Net, Network

Tree = dict[str, Tensor]

SLICE = 256
"""Rows that a full gradient takes at once."""


@dataclass(frozen=True)
class Site:
    """What one site sees of itself when it opens."""

    index: int
    n: int
    labels: Labels
    layout: Layout


@dataclass(frozen=True)
class Batch:
    """The examples of one local step. `real` is 0 on rows that only pad the batch to its shape."""

    x: Tensor
    labels: Any
    real: Tensor
    share: Tensor
    """1 / (number of real rows) on real rows, 0 on padding; a row a site where several sites step together."""
    rows: Tree
    """What the objective remembers of these examples."""
    draws: Tree
    """This step's random numbers, drawn before the round."""
    survey: Tree = field(default_factory=dict)
    """What the objective knows of all labels of the site together."""

    @classmethod
    def of(cls, x: Tensor, labels: Any, real: Tensor, rows: Tree, draws: Tree, survey: Tree | None = None) -> Batch:
        """A batch with its shares worked out."""
        return cls(x, labels, real, real / real.sum().clamp(min=1), rows, draws, survey or {})

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the real rows; one a site where several sites step together."""
        if self.share.ndim == 1:
            return values @ self.share
        return (values.view_as(self.share) * self.share).sum(-1)


@dataclass
class Step:
    """One local step: everything it may read, and `w` and `slots`, which it moves in place."""

    net: Net
    batch: Batch
    down: Tree
    memory: Tree
    slots: Tree
    lr: float
    momentum: float
    weight_decay: float

    @property
    def w(self) -> Tensor:
        """The weights being trained, [shared | personal]."""
        return self.net.w


@dataclass(frozen=True)
class Done:
    """A site after its last local step of a round."""

    net: Net
    slots: Tree
    down: Tree
    memory: Tree
    steps: int
    lr: float


@dataclass(frozen=True)
class Desk:
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
    secret: bytes
    """Known to all sites and not to the server."""
    steps: int
    """Local steps that the site makes in a round of training."""
    weight_decay: float = 0.0
    """Of these steps."""

    def whole(self) -> Batch:
        """All rows of the site as one batch."""
        return Batch.of(self.x, self.labels, self.x.new_ones(len(self.x)), self.rows, {}, self.batch.survey)

    def slices(self) -> Iterator[Batch]:
        """All rows of the site in batches of nearly one size, which save memory."""
        n = len(self.x)
        for at in torch.arange(n, device=self.x.device).tensor_split(-(-n // SLICE)):
            rows = {name: t[at] for name, t in self.rows.items()}
            real, survey = self.x.new_ones(len(at)), self.batch.survey
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


@dataclass(frozen=True)
class Updates:
    """The answers of one exchange, stacked: a row a site, in the order of `who`. They are claims, not facts."""

    who: tuple[int, ...]
    n: Tensor
    """Number of training rows of each."""
    trees: Tree
    parts: tuple[Tree, ...] = ()
    """One tree a site instead, in an opening exchange: their answers need not be of one shape."""

    def __getitem__(self, name: str) -> Tensor:
        return self.trees[name]

    @property
    def index(self) -> Tensor:
        """The sites' numbers as an index into what the server remembers of each."""
        return torch.tensor(self.who, device=self.n.device)

    def by_size(self) -> Tensor:
        """Weights n_k / n."""
        return self.n / self.n.sum()

    def uniform(self) -> Tensor:
        """Weights 1 / M, of the M sites that answered."""
        return torch.full_like(self.n, 1 / len(self.n))

    def only(self, kept: Tensor) -> Updates:
        """The answers of these rows (indices), in their order."""
        who = tuple(self.who[i] for i in kept.tolist())
        return Updates(who, self.n[kept], {name: t[kept] for name, t in self.trees.items()})

    def average(self, weights: Tensor) -> Tree:
        """The weighted mean of all that makes up the model: shared weights and shared buffers."""
        return {name: weights @ self.trees[name] for name in ("w", "buffers")}


def nothing_trusted(down: Tree) -> Done:
    """What `Hall.train` is where the server holds no labelled rows."""
    raise UsageError("the server trains on labelled rows of its own here and holds none; set split.trusted, as 0.05")


@dataclass
class Hall:
    """What the server may use while it merges, besides the answers."""

    net: Net
    public: Tensor
    round: int
    lr: float
    draw: torch.Generator
    notes: list[str] = field(default_factory=list)
    """Sentences for the log."""
    trusted: Trusted | None = None
    train: Callable[[Tree], Done] = nothing_trusted
    """The algorithm's own local steps on the trusted rows, as many as a site makes, from what is given as `down`."""
    classes: tuple[str, ...] = ()
    attribute: Attribute | None = None
    sites: tuple[str, ...] = ()
    """The sites' names, by their numbers."""
    left_out: tuple[int, ...] = ()
    """The sites that answered and whose answers a defence keeps from this merge."""
    suspicions: list[Suspicion] = field(default_factory=list)

    def suspect(self, site: int, score: float | None, confidence: float, out: bool) -> None:
        """Record what a defence thinks of one site in this round; a score of None is undefined."""
        self.suspicions.append(Suspicion(site, score, confidence, out))


@dataclass(frozen=True)
class Suspicion:
    """What a defence thinks of one site in one round."""

    site: int
    score: float | None
    confidence: float
    """Trust in the site, 0 .. 1."""
    out: bool
    """Whether its answer was left out of the merge."""


@dataclass(frozen=True)
class Exchange:
    """Server to sites and back, once. `answer` is None where the local training loop gives the answer.

    With `weigh`, the server needs no more than the sum of the sites' mean gradients at the weights sent, each times its
    weight (from the numbers of rows). One pass over all rows then stands for a pass a site, no site gets a copy of the
    model, and `gather` finds the sum as updates["g"], of one row.
    """

    name: str
    gather: Callable[[Tree, Updates, Hall], Tree]
    answer: Callable[[Desk], Tree] | None = None
    weigh: Callable[[Tensor], Tensor] | None = None
    traffic: Callable[[Tree, Hall], tuple[int, int]] | None = None
    """Numbers a site receives and sends, where that is less than the whole model (of an exchange with `weigh`)."""

    @property
    def trains(self) -> bool:
        """Whether the sites make their local steps in it."""
        return self.answer is None and self.weigh is None


@dataclass(frozen=True)
class Objective(ABC):
    """A local loss over one kind of labels, with what it remembers of every example. Works under any algorithm."""

    name: ClassVar[str]
    labels: ClassVar[type[Labels]]
    reference: ClassVar[bool] = False
    """Whether it is what an algorithm minimises on this kind of labels when nothing else was chosen."""
    by_itself: ClassVar[bool] = True
    """Whether an example's loss and memory depend on the network's answer to it alone, not on others in its batch."""

    @classmethod
    def accepts(cls, kind: type[Labels]) -> bool:
        """Whether it learns from this kind of labels."""
        return kind is cls.labels

    def open(self, labels: Any) -> Tree:
        """Memory of each example before the first round, [n, ...]."""
        return {}

    def survey(self, labels: Any) -> Tree:
        """What holds of all labels of one site together, such as counts; every batch of that site carries it.

        `loss` must broadcast it over rows: in one pass for all sites each row carries its own site's.
        """
        return {}

    @abstractmethod
    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        """The loss of each example [B], and anything `remember` wants from this forward pass."""

    def remember(self, net: Callable[[Tensor], Tensor], batch: Batch, out: Any) -> Tree:
        """New memory of the batch's examples, after the step; the network is in evaluation mode, without gradient."""
        return {}

    def believe(self, logits: Tensor, labels: Any, rows: Tree) -> Tensor | None:
        """Probability of each class for each training example: the labels worked out. None where it works out none."""
        return None


@dataclass(frozen=True)
class Algorithm:
    """A federated method. Fields are its hyper-parameters; the hooks below have FedAvg's defaults."""

    name: ClassVar[str]
    gathers: ClassVar[bool] = False
    """Whether the sites' rows are brought together first: the reference nobody may have in practice."""
    made_for: ClassVar[type[Labels] | None] = None
    """The kind of labels it was made for, where its objective does not say so."""
    objective: Objective | None = None
    """None: the reference objective of the labels' kind."""

    @property
    def trusts(self) -> bool:
        """Whether it asks for labelled rows at the server (`split.trusted`)."""
        return False

    @property
    def one_model(self) -> bool:
        """Whether the server's "w" is a model for all sites; not so where it keeps several and each is for some."""
        return True

    @property
    def apart(self) -> str:
        """Why no rule may mix the sites' answers number by number; empty where one may."""
        return ""

    # -- the model ------------------------------------------------------------------------------------------------

    def build(self, network: Network) -> Network:
        """Changes to the network before round 0."""
        return network

    def stays(self, name: str) -> bool:
        """Whether the parameter of this name never leaves its site."""
        return False

    # -- a site ---------------------------------------------------------------------------------------------------

    def open(self, site: Site) -> Tree:
        """A site's memory before the first round."""
        return {}

    def draws(self, steps: int, batch: int, generator: torch.Generator) -> Tree:
        """Random numbers of a round's local steps: [steps], or [steps, batch, ...] for numbers of each row."""
        return {}

    def begin(self, desk: Desk) -> Tree:
        """What local training starts from; a site that chooses by its own data replaces or adds parts of `down`."""
        return desk.down

    def start(self, w: Tensor, down: Tree, memory: Tree) -> Tree:
        """The optimiser's slots at the start of a round."""
        return {"v": torch.zeros_like(w)}

    def total(self, objective: Objective, step: Step) -> tuple[Tensor, Any]:
        """The scalar that a local step descends."""
        values, out = objective.loss(step.net, step.batch)
        return step.batch.mean(values), out

    def correct(self, g: Tensor, step: Step) -> Tensor:
        """What a method does to the gradient before the step."""
        return g

    def move(self, g: Tensor, step: Step) -> None:
        """SGD with momentum: v <- m v + g, w <- w - lr v."""
        v = step.slots["v"]
        step.w.sub_(torch.add(g, v, alpha=step.momentum, out=v), alpha=step.lr)

    def slope(self, loss: Tensor, step: Step) -> Tensor:
        """The gradient that is stepped along."""
        g = step.net.backward(loss)
        if step.weight_decay:
            g.add_(step.w, alpha=step.weight_decay)
        return self.correct(g, step)

    def local(self, objective: Objective, step: Step) -> tuple[Tensor, Any]:
        """One whole local step."""
        loss, out = self.total(objective, step)
        self.move(self.slope(loss, step), step)
        return loss.detach(), out

    def reply(self, done: Done) -> tuple[Tree, Tree]:
        """What a site sends beside its shared weights, and its new memory."""
        return {}, done.memory

    # -- the server -----------------------------------------------------------------------------------------------

    def serve(self, w: Tensor, sites: int) -> Tree:
        """What the server remembers beside "w" and "buffers" before round 0."""
        return {}

    def send(self, server: Tree, site: int) -> Tree:
        """What a site receives beside the shared weights (a "w" given here replaces them)."""
        return {}

    def opening(self) -> tuple[Exchange, ...]:
        """One-shot exchanges with all sites before round 0; what they gather may add names to the server's memory."""
        return ()

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        """The exchanges of one round, in order."""
        return (Exchange("train", self.merge),)

    def merge(self, server: Tree, updates: Updates, hall: Hall) -> Tree:
        """FedAvg: the mean of the answers, weighted by the sites' sizes."""
        return server | updates.average(updates.by_size())

    def unmerged(self, server: Tree) -> Tree:
        """What the server remembers after local training of which no answer is merged."""
        return server

    def account(self, server: Tree) -> dict[str, float]:
        """Numbers for the summary that only the method knows, such as the privacy spent."""
        return {}

    def model(self, server: Tree, site: int) -> tuple[Tensor, Tensor]:
        """The shared weights and buffers with which a site predicts."""
        return server["w"], server["buffers"]
