"""Krum and Multi-Krum (Blanchard et al., "Machine learning with adversaries: Byzantine tolerant gradient descent",
NeurIPS 2017).

Source: the definitions are from memory, compared with the code of two public libraries, which differ (FedML uses
n - f - 2 neighbours, ByzFL n - f - 1).

    symbol    where it lives                        does it travel
    V_i       updates["w"]                          up
    n         len(updates.who), sites that answered
    f         adversaries, declared
    m         m, how many answers are kept
    s(i)      computed by the server                never

Everything that a kept site sent is kept: its weights, normalisation buffers and any further answers. The sizes that
sites claim are not used: where several answers are kept, they have equal weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from imperfed.core.errors import not_negative
from imperfed.core.exchange import Updates
from imperfed.defences.robust import Robust

NEIGHBOURS = {"n-f-2": 2, "n-f-1": 1}


@dataclass(frozen=True)
class Krum(Robust):
    """Keep the one answer that is closest to its neighbours."""

    name: ClassVar[str] = "krum"
    neighbours: Literal["n-f-2", "n-f-1"] = "n-f-2"  # how many of the nearest other answers a score counts

    def needs(self) -> int:
        return 2 * self.adversaries + 3

    def keeps(self, n: int) -> int:
        """Return how many of n answers are kept."""
        return 1

    def rule(self, updates: Updates) -> Updates:
        n = len(updates.who)
        s = scores(updates["w"], n - self.adversaries - NEIGHBOURS[self.neighbours])
        kept = updates.only(lowest(s, self.keeps(n)))
        return replace(kept, n=torch.ones_like(kept.n))


@dataclass(frozen=True)
class MultiKrum(Krum):
    """Keep the m answers that are closest to their neighbours."""

    name: ClassVar[str] = "multi-krum"
    m: int = 0  # m, at most n - f; 0: n - f - 2

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative("defence", m=self.m)

    def needs(self) -> int:
        return max(super().needs(), self.m + self.adversaries)

    def keeps(self, n: int) -> int:
        return self.m or n - self.adversaries - 2


def scores(V: Tensor, neighbours: int) -> Tensor:
    """Return s(i), the sum of squared distances from V_i to its nearest others; [n], in double precision."""
    return nearest_sums(squared_distances(V), neighbours)


def squared_distances(V: Tensor) -> Tensor:
    """Return the squared distances between all answers, [n, n], in double precision."""
    V = V.double()
    return torch.stack([(V - v).square().sum(1) for v in V])


def nearest_sums(D: Tensor, neighbours: int) -> Tensor:
    """Return the sum of each row's smallest distances to others."""
    D = D.clone().fill_diagonal_(-1.0)  # sorts V_i itself first, before any exact copies of it, where it is cut off
    return D.sort(1).values[:, 1 : 1 + neighbours].sum(1)


def lowest(scores: Tensor, m: int) -> Tensor:
    """Return the indices of the m lowest scores, ties to the lowest index, in increasing order."""
    return scores.argsort(stable=True)[:m].sort().values
