"""Sites with two tasks and classes that lie in directions of their own, and clean rows at the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.context import ServerView, SiteView
from imperfed.core.exchange import Query
from imperfed.core.federation import Trusted
from imperfed.core.labels import Exact
from imperfed.engine.conversation import Transcript, ask_here, converse

CLASSES = ("a", "b", "c", "d")
D = 12
TASK_OF = (0, 0, 1, 1)


def rows(y: Tensor, draw: torch.Generator, spread: float = 0.25) -> Tensor:
    """Features around a direction of each class, two of which lie near each other in either task."""
    centres = torch.zeros(4, D)
    for c in range(4):
        centres[c, 3 * c : 3 * c + 3] = 1.0
    centres[1, :3] = centres[3, 6:9] = 0.4
    return centres[y] + spread * torch.randn(len(y), D, generator=draw)


def site(
    index: int, counts: list[int], draw: torch.Generator, given: dict[int, int] | None = None
) -> tuple[SiteView, Tensor]:
    """A site with so many rows of each class, and its true classes; `given` says which classes were labelled wrong."""
    y = torch.arange(4).repeat_interleave(torch.tensor(counts))
    told = y.clone()
    for true, wrong in (given or {}).items():
        told[y == true] = wrong
    return view(rows(y, draw), told, index), y


def view(x: Tensor, given: Tensor, index: int = 0) -> SiteView:
    """A site with these rows, which has received and remembers nothing."""
    return SiteView(index, x, Exact(given, 4), {}, {})


def clean(draw: torch.Generator, each: int = 30, spread: float = 0.25) -> Trusted:
    """The server's rows: `each` clean ones of every class."""
    y = torch.arange(4).repeat(each)
    return Trusted(rows(y, draw, spread), Exact(y, 4))


@dataclass(frozen=True)
class Message:
    """What went between one site and the server in one exchange."""

    exchange: str
    site: int
    up: bool
    content: Tree


def held(
    exchanges: Sequence[Query], views: Sequence[SiteView], server: Tree, trusted: Trusted | None = None
) -> tuple[Transcript, list[Message]]:
    """Exchanges between a server and sites in this process, with every message kept."""
    messages: list[Message] = []
    answer = ask_here(exchanges, views)

    def ask(number: int, downs: Sequence[Tree]) -> tuple[Tree, ...]:
        answers = answer(number, downs)
        for up, trees in ((False, downs), (True, answers)):
            messages.extend(Message(exchanges[number].name, k, up, tree) for k, tree in enumerate(trees) if tree)
        return answers

    context = ServerView(classes=CLASSES, trusted=trusted)
    return converse(exchanges, server, context, [len(one.x) for one in views], ask), messages
