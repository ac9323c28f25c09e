"""The answers of an exchange that lie at the ranks: sums of them travel, single ones only if somebody looks at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from imperfed.core.exchange import AnswersElsewhere
from imperfed.engine.backends.distributed.held import Form

Gather = Callable[[str, tuple[int, ...]], Tensor]
"""From a name and sites to their answers, one row per site."""
AddUp = Callable[[str, tuple[int, ...], Tensor, Form], Tensor]
"""From a name, sites, rows of weights, and the form of one answer to one sum per row."""


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

    def weighted_sum(self, name: str, weights: Tensor) -> Tensor:
        if name in self.gathered:  # as in one process, from answers that are here
            return weights @ self.gathered[name]
        sums = self.add_up(name, self.sites, torch.atleast_2d(weights), self.forms[name]).to(weights.dtype)
        return sums if weights.ndim == 2 else sums[0]

    def only(self, rows: Tensor) -> RankAnswers:
        at = rows.tolist()
        gathered = {name: t[rows] for name, t in self.gathered.items()}
        return RankAnswers(tuple(self.sites[i] for i in at), self.forms, self.gather, self.add_up, gathered)
