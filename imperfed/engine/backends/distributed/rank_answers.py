"""The answers of an exchange that lie at the ranks: sums of them travel, single ones only if somebody looks at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.exchange import AnswersElsewhere
from imperfed.engine.backends.distributed.held import Form

Gather = Callable[[str, tuple[int, ...]], Tensor]
"""From a name and sites to their answers, one row per site."""
AddUp = Callable[[tuple[str, ...], tuple[int, ...], Tensor, int], Tensor]
"""From names, sites, rows of weights, and how many numbers a site's answers under these names are, to a sum per row."""


@dataclass(frozen=True)
class RankAnswers(AnswersElsewhere):
    """The answers of some sites, by name."""

    sites: tuple[int, ...]
    forms: Mapping[str, Form]
    gather: Gather
    add_up: AddUp
    gathered: dict[str, Tensor] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.forms:
            raise KeyError(name)
        if name not in self.gathered:
            self.gathered[name] = self.gather(name, self.sites)
        return self.gathered[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.forms)

    def __len__(self) -> int:
        return len(self.forms)

    def weighted_sums(self, names: tuple[str, ...], weights: Tensor) -> Tree:
        sums = {name: weights @ self.gathered[name] for name in names if name in self.gathered}  # as in one process
        shapes = {name: self.forms[name][0] for name in names if name not in sums}
        sizes = [shape.numel() for shape in shapes.values()]
        if not any(sizes):
            return sums | {name: weights.new_zeros(*weights.shape[:-1], *shape) for name, shape in shapes.items()}
        total = self.add_up(tuple(shapes), self.sites, torch.atleast_2d(weights), sum(sizes)).to(weights.dtype)
        parts = zip(shapes.items(), total.split(sizes, 1), strict=True)
        return sums | {name: part.reshape(*weights.shape[:-1], *shape) for (name, shape), part in parts}

    def only(self, rows: Tensor) -> RankAnswers:
        at = rows.tolist()
        gathered = {name: t[rows] for name, t in self.gathered.items()}
        return RankAnswers(tuple(self.sites[i] for i in at), self.forms, self.gather, self.add_up, gathered)
