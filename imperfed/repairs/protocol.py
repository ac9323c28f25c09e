"""A short conversation between a server and its sites, before training.

A conversation is a tuple of steps. In each, every site answers from its own rows and what it has received, and the
server works out from the answers what each site receives next. The two halves know nothing of each other but what is in
the messages, so that the same steps can be run over a network; `converse` runs them in one process and keeps every
message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from imperfed.core import Tree
from imperfed.labels import Exact

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
class Step:
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
class Talk:
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


def nothing(view: View, received: Tree) -> Tree:
    """The answer of a site that only listens."""
    return {}


def converse(steps: Sequence[Step], views: Sequence[View], server: Tree) -> Talk:
    """All steps in one process, with every message kept."""
    received: list[Tree] = [{} for _ in views]
    messages: list[Message] = []
    for step in steps:
        answers = tuple(step.answer(view, had) for view, had in zip(views, received, strict=True))
        server, downs = step.gather(server, answers)
        for up, trees in ((True, answers), (False, downs)):
            messages += [Message(step.name, k, up, tree) for k, tree in enumerate(trees) if tree]
        received = [had | down for had, down in zip(received, downs, strict=True)]
    return Talk(server, tuple(received), tuple(messages))
