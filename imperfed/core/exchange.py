"""One exchange between the server and its sites: something is sent down, the sites answer, the server aggregates.

There are three kinds. In `Train` the answer comes from the local training loop. In `Query` the site computes the
answer itself. In `WeightedGradient` the server needs only the weighted sum of the sites' gradients, so that one pass
over all rows can replace one pass per site. Algorithms list the exchanges of a round, repairs those before training.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from imperfed.core.batch import Tree, part_of, prefixed
from imperfed.core.context import ServerContext


class AnswersElsewhere(Mapping[str, Tensor]):
    """Answers that lie in other processes. Asking for a name fetches the rows of all sites; sums are made there."""

    @abstractmethod
    def weighted_sums(self, names: tuple[str, ...], weights: Tensor) -> Tree:
        """Return `weights @ self[name]` for every name, up to rounding; no single answer is fetched."""

    @abstractmethod
    def only(self, rows: Tensor) -> AnswersElsewhere:
        """Return the answers in these rows, given as indices, in that order."""


@dataclass(frozen=True)
class Updates:
    """The answers of one exchange, stacked: one row per site, in the order of `who`. They are claims, not facts."""

    who: tuple[int, ...]
    n: Tensor
    """The number of training rows of each site."""
    trees: Mapping[str, Tensor]
    parts: tuple[Tree, ...] = ()
    """One tree per site instead of `trees`, in exchanges before round 0: their answers may differ in shape."""

    def __getitem__(self, name: str) -> Tensor:
        return self.trees[name]

    @property
    def index(self) -> Tensor:
        """The sites' numbers as an index into what the server remembers about each site."""
        return torch.tensor(self.who, device=self.n.device)

    def by_size(self) -> Tensor:
        """Return the weights n_k / n."""
        return self.n / self.n.sum()

    def uniform(self) -> Tensor:
        """Return the weights 1 / M, for M sites that answered."""
        return torch.full_like(self.n, 1 / len(self.n))

    def only(self, kept: Tensor) -> Updates:
        """Return the answers in these rows, given as indices, in that order."""
        who, trees = tuple(self.who[i] for i in kept.tolist()), self.trees
        if isinstance(trees, AnswersElsewhere):
            return Updates(who, self.n[kept], trees.only(kept))
        return Updates(who, self.n[kept], {name: t[kept] for name, t in trees.items()})

    def weighted_sum(self, name: str, weights: Tensor) -> Tensor:
        """Return the sum over the sites of what they sent under a name, each times its weight: `weights @ self[name]`.

        `weights`: one per site, or a row of them for each of several sums. Unlike `updates[name]`, this brings no
        single answers together where they are elsewhere.
        """
        return self._weighted_sums((name,), weights)[name]

    def average(self, weights: Tensor, *further: str) -> Tree:
        """Return the weighted mean of the model, shared weights and shared buffers, and of `further` parts."""
        return self._weighted_sums(("w", "buffers", *further), weights)

    def _weighted_sums(self, names: tuple[str, ...], weights: Tensor) -> Tree:
        trees = self.trees
        if isinstance(trees, AnswersElsewhere):
            return trees.weighted_sums(names, weights)
        return {name: weights @ trees[name] for name in names}


def send_model(server: Tree, site: int) -> Tree:
    """Send nothing besides the model."""
    return {}


@dataclass(frozen=True)
class Exchange:
    """What all exchanges have in common. Use one of the three kinds below."""

    name: str
    aggregate: Callable[[Tree, Updates, Any], Tree]
    """Turns the server's memory, the answers and a `ServerContext` into the server's new memory.

    In a repair, which runs before there is a model, the third argument is a `ServerView`.
    """
    send: Callable[[Tree, int], Tree] = send_model
    """From the server's memory and a site's number to what that site receives besides the model's "w" and "buffers".

    A "w" returned here replaces the shared weights.
    """


@dataclass(frozen=True)
class Train(Exchange):
    """The sites make their local steps and answer with their shared weights and what `Algorithm.reply` adds."""

    name: str = field(default="train", init=False)


@dataclass(frozen=True, kw_only=True)
class Query(Exchange):
    """The sites answer a question from their own rows; nothing is trained."""

    respond: Callable[[Any], Tree]
    """At a site: from a `SiteContext` to the answer. In a repair, from a `SiteView`."""
    ragged: bool = False
    """In a repair: whether the first length of what sites answer may differ, as with one entry per row."""
    partial: bool = False
    """In a repair: whether a site to which nothing was sent may leave out parts of the answer, or all of it."""
    doubt: Callable[[Tree, Tree, int], str] | None = None
    """In a repair: from the server's memory, a site's answer and its number of rows to why the answer cannot be true.

    Empty if it may be. The answer has the names, shapes and types of most sites' answers, and finite numbers.
    """

    def on_part(self, prefix: str) -> Query:
        """Return the query with answers that go to the part of the server's memory whose names begin with a prefix."""

        def aggregate(server: Tree, updates: Updates, context: ServerContext) -> Tree:
            return server | prefixed(prefix, self.aggregate(part_of(server, prefix), updates, context))

        return replace(self, aggregate=aggregate)


@dataclass(frozen=True, kw_only=True)
class WeightedGradient(Exchange):
    """The server needs sum_k p_k grad f_k at the weights sent; `aggregate` finds it as updates["g"], one row."""

    weights: Callable[[Tensor], Tensor]
    """From the number of rows at each site to the weights p_k."""
    traffic: Callable[[Tree, ServerContext], tuple[int, int]] | None = None
    """How many numbers a site receives and sends, where that is less than the whole model."""
