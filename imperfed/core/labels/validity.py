"""How far predictions for held-out rows agree with the labels of these rows as they are given, without any truth."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor

PAIRS = 1 << 22
"""The most pairs of classes that are compared at once."""


class Validity(NamedTuple):
    """A score, at most 1, and its weight: how much the rows behind it say. A weight of 0 means nothing at all."""

    score: float
    weight: float

    @classmethod
    def of(cls, total: float, weight: float) -> Validity:
        """Return a sum over rows divided by its weight; `UNKNOWN` where the weight is 0."""
        return cls(total / weight, weight) if weight > 0 else UNKNOWN

    @property
    def known(self) -> bool:
        """Whether there is anything to go by."""
        return self.weight > 0 and math.isfinite(self.score)


UNKNOWN = Validity(math.nan, 0.0)


def mean(parts: Iterable[Validity]) -> Validity:
    """Return the mean of the known scores by weight, with the sum of their weights."""
    known = [part for part in parts if part.known]
    return Validity.of(math.fsum(p.score * p.weight for p in known), math.fsum(p.weight for p in known))


def consistency(logits: Tensor, sets: Tensor) -> Validity:
    """Return how often the highest logit is a class of the row's set, corrected for the size of the set; bool [n, C].

    A wrong prediction is in a set of s classes with probability q = (s - 1) / (C - 1), if the classes beside the true
    one are drawn uniformly. So (hit - q) / (1 - q) has the accuracy as its expectation. It says the less the larger
    the set: rows are weighted by 1 - q, which is 1 for a single class and 0 for all of them.
    """
    classes = sets.shape[1]
    if classes < 2:
        return UNKNOWN
    hit = sets.gather(1, logits.argmax(1, keepdim=True)).flatten().double()
    q = (sets.sum(1).double() - 1) / (classes - 1)
    return Validity.of(float((hit - q).sum()), float((1 - q).sum()))


def ranking(logits: Tensor, named: Tensor) -> Validity:
    """Return how high the named classes of a row stand: the share of its other classes below each; bool [n, C].

    The mean over all named classes that have others to be compared with; an equal logit counts one half.
    """
    row, column = (named & ~named.all(1, keepdim=True)).nonzero().unbind(1)
    total = 0.0
    for part in range(0, len(row), step := max(1, PAIRS // named.shape[1])):
        r, c = row[part : part + step], column[part : part + step]
        other, own = ~named[r], logits[r, c].unsqueeze(1)
        below = (logits[r] < own).double() + 0.5 * (logits[r] == own)
        total += float(((below * other).sum(1) / other.sum(1)).sum())
    return Validity.of(total, float(len(row)))
