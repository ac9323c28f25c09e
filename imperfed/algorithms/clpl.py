"""CLPL, convex learning from candidate sets (Cour, Sapp and Taskar, "Learning from partial labels", JMLR 2011).

Source: the definition is from memory, unverified; the form with softmax scores was checked against a third party's code
(VALEN's); the authors' own was not available.

    symbol    where it lives                          does it travel
    S         labels.values, 0/1 or in between        never
    g         the logits, or their softmax            never
    psi       squared hinge, max(0, 1 - u)^2          never

Departs from the paper in: the scores come from any network instead of linear one-against-all classifiers. With softmax
scores the non-candidates cost at least 1 each, so the loss never comes near 0. Memberships S_j between 0 and 1 weight
the terms of class j: by S_j as a candidate and by 1 - S_j as a non-candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from imperfed.core.batch import Batch, Tree
from imperfed.core.labels import Candidates, Labels, Memberships
from imperfed.core.objective import Objective
from imperfed.nn.losses import masked_softmax


def psi(u: Tensor) -> Tensor:
    """Return the squared hinge, convex and decreasing."""
    return torch.relu(1 - u).square()


@dataclass(frozen=True)
class CLPL(Objective):
    """A squared hinge that wants the candidates' mean score high and every other score low."""

    name: ClassVar[str] = "clpl"
    labels: ClassVar[type[Candidates]] = Candidates
    scores: Literal["logits", "softmax"] = "logits"  # g
    naive: bool = False  # the looser bound: the score of every candidate must be high

    @classmethod
    def accepts(cls, kind: type[Labels]) -> bool:
        return kind in (Candidates, Memberships)

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        z = net(batch.x)
        S = batch.labels.values.to(z.dtype)
        g = z if self.scores == "logits" else torch.softmax(z, -1)
        # psi(1/|S| sum_j S_j g_j), or the naive 1/|S| sum_j S_j psi(g_j), with |S| = sum_j S_j
        candidates = weighted_mean(psi(g), S) if self.naive else psi(weighted_mean(g, S))
        others = (psi(-g) * (1 - S)).sum(-1)  # sum_j (1 - S_j) psi(-g_j)
        return candidates + others, None

    def infer_labels(self, logits: Tensor, labels: Labels, rows: Tree) -> Tensor:
        return masked_softmax(logits, labels.values > 0)


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted mean of every row; 0 where all its weights are 0."""
    return (values * weights).sum(-1) / weights.sum(-1).clamp(min=torch.finfo(weights.dtype).tiny)
