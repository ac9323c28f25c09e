"""CLPL, convex learning from candidate sets (Cour, Sapp and Taskar, "Learning from partial labels", JMLR 2011).

Source: the definition is from memory, unverified; the form on softmax scores was checked against a third party's code
(that of VALEN); the authors' own was not available.

    symbol    where it lives                          does it travel
    S         labels.values                           never
    g         the logits, or their softmax            never
    psi       squared hinge, max(0, 1 - u)^2          never

Departs from the paper in: the scores come from any network instead of linear one-against-all classifiers. With softmax
scores the non-candidates cost at least 1 each, so the loss never comes near 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from imperfed.core import Batch, Objective, Tree
from imperfed.errors import unknown
from imperfed.labels import Candidates
from imperfed.losses import masked_mean, masked_softmax


def psi(u: Tensor) -> Tensor:
    """The squared hinge: convex and decreasing."""
    return torch.relu(1 - u).square()


@dataclass(frozen=True)
class CLPL(Objective):
    """The candidates' mean score must be high, and every other score low."""

    name: ClassVar[str] = "clpl"
    labels: ClassVar[type[Candidates]] = Candidates
    scores: str = "logits"  # g: "logits" or "softmax"
    naive: bool = False  # the looser bound: every candidate's score must be high

    def __post_init__(self) -> None:
        if self.scores not in ("logits", "softmax"):
            raise unknown("scores of clpl", self.scores, ("logits", "softmax"))

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        S, z = batch.labels.values, net(batch.x)
        g = z if self.scores == "logits" else torch.softmax(z, -1)
        # psi(1/|S| sum_{j in S} g_j), or the naive 1/|S| sum_{j in S} psi(g_j)
        candidates = masked_mean(psi(g), S) if self.naive else psi(masked_mean(g, S))
        others = (psi(-g) * ~S).sum(-1)  # sum_{j not in S} psi(-g_j)
        return candidates + others, None

    def believe(self, logits: Tensor, labels: Candidates, rows: Tree) -> Tensor:
        return masked_softmax(logits, labels.values)
