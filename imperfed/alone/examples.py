"""Families that learn from weighted examples of one class each, as scikit-learn does, for labels of any kind."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.alone.base import AloneModel, Fitted, ModelPart, Real, Whole
from imperfed.core.labels import Labels


@dataclass(frozen=True)
class Always(Fitted):
    """The same probabilities for every row: all there is to learn from rows of one class."""

    form: ClassVar[str] = "always"
    probability: Tensor

    def probabilities(self, x: Tensor) -> Tensor:
        return self.probability.expand(x.shape[0], -1)

    @classmethod
    def share_of(cls, marks: Tensor) -> Always:
        """Return how often a class is present, from marks of 0 and 1; one half where there are none."""
        share = float(marks.float().mean()) if len(marks) else 0.5
        return cls(torch.tensor([1 - share, share]))


@dataclass(frozen=True)
class ExampleModel(AloneModel):
    """A family fitted to examples with a weight each.

    Where a row has one class, labels that leave several open count each by its share. Where rows have several classes,
    one model per class is fitted to the rows that say whether they have it.
    """

    def fit(self, x: Tensor, labels: Labels, seed: int) -> tuple[ModelPart, ...]:
        flat = x.flatten(1).double()
        if labels.several:
            return tuple(self._one_by_one(flat, labels, seed))
        return (self._one_class(flat, labels, seed),)

    @abstractmethod
    def fit_examples(self, x: Real, y: Whole, weight: Real, seed: int) -> Fitted:
        """Fit weighted examples whose classes are 0 .. k - 1, each of which occurs, with k >= 2."""

    def _one_class(self, x: Tensor, labels: Labels, seed: int) -> ModelPart:
        rows, classes, weight = labels.weighted_examples()
        seen, y = classes.unique(return_inverse=True)
        if len(seen) == 1:
            return ModelPart(Always(torch.ones(1)), seen, present=False)
        fitted = self.fit_examples(x[rows].numpy(), y.numpy(), weight.double().numpy(), seed)
        return ModelPart(fitted, seen, present=False)

    def _one_by_one(self, x: Tensor, labels: Labels, seed: int) -> Iterator[ModelPart]:
        for c, marks in enumerate(labels.marks().unbind(1)):
            known = marks >= 0
            y = marks[known].long()
            fitted: Fitted
            if not len(y) or y.min() == y.max():  # a single class
                fitted = Always.share_of(y)
            else:
                fitted = self.fit_examples(x[known].numpy(), y.numpy(), torch.ones(len(y)).double().numpy(), seed)
            yield ModelPart(fitted, torch.tensor([c]), present=True)
