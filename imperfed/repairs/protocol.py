"""A short conversation between a server and its sites, before training.

A conversation is a tuple of steps. In each, every site answers from its own rows and what it has received, and the
server works out from the answers what each site receives next. The two halves know nothing of each other but what is in
the messages, so that the same steps can be run over a network: `lead` is the server's side, and `converse` has the
sites in the same process. Every message is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.federation import Federation
from imperfed.core.labels import Exact

FEWEST = 10


def fewest(M: int) -> int:
    """Rows that must stand behind M directions that leave a site."""
    return max(M, FEWEST)


@dataclass(frozen=True)
class View:
    """What one site sees: its own rows, and what it has worked out from them and never sends."""

    index: int
    x: Tensor
    labels: Exact
    memory: Tree = field(default_factory=dict)


@dataclass(frozen=True)
class RepairStep:
    """Sites to server and back, once."""

    name: str
    answer: Callable[[View, Tree], Tree]
    """At a site: from its view and all it has received so far to what it sends. An empty tree sends nothing."""
    gather: Callable[[Tree, tuple[Tree, ...]], tuple[Tree, tuple[Tree, ...]]]
    """At the server: from its memory and the answers to its new memory and what each site receives."""


@dataclass(frozen=True)
class Message:
    """What went between one site and the server in one step."""

    step: str
    site: int
    up: bool
    content: Tree

    @property
    def bytes(self) -> int:
        """The numbers alone; what a transport adds is not counted."""
        return sum(t.numel() * t.element_size() for t in self.content.values())


@dataclass(frozen=True)
class Transcript:
    """A conversation that has ended."""

    server: Tree
    received: tuple[Tree, ...]
    """All that each site received."""
    messages: tuple[Message, ...]

    def bytes(self, up: bool) -> int:
        """All bytes of one direction."""
        return sum(m.bytes for m in self.messages if m.up == up)

    def sent(self) -> dict[str, tuple[int, ...]]:
        """Name and largest shape of everything that left a site."""
        largest: dict[str, Tensor] = {}
        for message in self.messages:
            for name, t in message.content.items():
                if message.up and (name not in largest or t.numel() > largest[name].numel()):
                    largest[name] = t
        return {name: tuple(t.shape) for name, t in largest.items()}


@dataclass(frozen=True)
class LabelDecision:
    """What a site decides about its own labels."""

    suggested: Tensor
    confidence: Tensor
    why: Tensor
    """A number a row, which `Conversation.reasons` puts into words."""
    noise: float
    """The share of wrong labels it estimates; NaN where it looks for none."""

    @classmethod
    def of_all(cls, verdicts: Sequence[LabelDecision]) -> LabelDecision:
        """Those of several sites, one after the other; their mean noise."""
        suggested, confidence, why = (
            torch.cat(parts) for parts in zip(*((v.suggested, v.confidence, v.why) for v in verdicts), strict=True)
        )
        return cls(suggested, confidence, why, sum(v.noise for v in verdicts) / len(verdicts))


@runtime_checkable
class Conversation(Protocol):
    """A repair whose sites may be elsewhere: every half of it knows only its own side."""

    name: ClassVar[str]

    def check(self, federation: Federation) -> Exact:
        """At the server: refuse what cannot be mended before anything is sent."""

    def opening(self, federation: Federation) -> Tree:
        """What the server remembers before the first step."""

    def steps(self, classes: tuple[str, ...]) -> tuple[RepairStep, ...]:
        """All steps."""

    def grouped(self, federation: Federation, talk: Transcript) -> Federation:
        """At the server, after the last step: the federation with the groups found."""

    def decide(self, classes: tuple[str, ...], view: View, received: Tree) -> LabelDecision:
        """At a site, after the last step: what to think of its own labels."""

    def reasons(self, classes: tuple[str, ...], verdict: LabelDecision) -> tuple[str, ...]:
        """Why each label is what it is, in words."""


def nothing(view: View, received: Tree) -> Tree:
    """The answer of a site that only listens."""
    return {}


Ask = Callable[[int, Sequence[Tree]], tuple[Tree, ...]]
"""From the number of a step and all that each site has received to the sites' answers."""


def converse(steps: Sequence[RepairStep], views: Sequence[View], server: Tree) -> Transcript:
    """All steps in one process, with every message kept."""

    def ask(number: int, received: Sequence[Tree]) -> tuple[Tree, ...]:
        return tuple(steps[number].answer(view, had) for view, had in zip(views, received, strict=True))

    return lead(steps, len(views), ask, server)


def lead(steps: Sequence[RepairStep], sites: int, ask: Ask, server: Tree) -> Transcript:
    """The server's side of all steps, wherever the sites are."""
    received: list[Tree] = [{} for _ in range(sites)]
    messages: list[Message] = []
    for number, step in enumerate(steps):
        answers = ask(number, received)
        server, downs = step.gather(server, answers)
        for up, trees in ((True, answers), (False, downs)):
            messages += [Message(step.name, k, up, tree) for k, tree in enumerate(trees) if tree]
        received = [had | down for had, down in zip(received, downs, strict=True)]
    return Transcript(server, tuple(received), tuple(messages))
