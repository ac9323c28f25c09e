"""Server to sites and back, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext, SiteContext


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


@dataclass(frozen=True)
class Exchange:
    """Server to sites and back, once. `answer` is None where the local training loop gives the answer.

    With `weigh`, the server needs no more than the sum of the sites' mean gradients at the weights sent, each times its
    weight (from the numbers of rows). One pass over all rows then stands for a pass a site, no site gets a copy of the
    model, and `gather` finds the sum as updates["g"], of one row.
    """

    name: str
    aggregate: Callable[[Tree, Updates, ServerContext], Tree]
    respond: Callable[[SiteContext], Tree] | None = None
    weights: Callable[[Tensor], Tensor] | None = None
    traffic: Callable[[Tree, ServerContext], tuple[int, int]] | None = None
    """Numbers a site receives and sends, where that is less than the whole model (of an exchange with `weigh`)."""

    @property
    def trains(self) -> bool:
        """Whether the sites make their local steps in it."""
        return self.respond is None and self.weights is None
