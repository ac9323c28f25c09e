"""Logistic regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from imperfed.alone.base import Fitted, Real, Whole
from imperfed.alone.examples import ExampleModel
from imperfed.core.labels import Labels


@dataclass(frozen=True)
class Linear(Fitted):
    """One linear function per class, and a softmax over them."""

    form: ClassVar[str] = "linear"
    weight: Tensor
    bias: Tensor

    def probabilities(self, x: Tensor) -> Tensor:
        return torch.softmax(x.double() @ self.weight.T + self.bias, 1).float()


@dataclass(frozen=True)
class Logistic(ExampleModel):
    """Multinomial logistic regression with an L2 penalty, on inputs of mean 0 and deviation 1."""

    name: ClassVar[str] = "logistic"
    penalty: float = 1.0  # 1 / C of scikit-learn
    steps: int = 300

    @classmethod
    def grid(cls, kind: type[Labels], shape: tuple[int, ...]) -> tuple[Any, ...]:
        return (cls(0.1), cls(1.0), cls(10.0))

    def fit_examples(self, x: Real, y: Whole, weight: Real, seed: int) -> Fitted:
        from sklearn.linear_model import LogisticRegression

        mean = np.average(x, axis=0, weights=weight)
        spread = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weight))
        spread[spread == 0] = 1.0  # a constant column says nothing, whatever its weight
        model = LogisticRegression(C=1 / self.penalty, max_iter=self.steps)
        with np.errstate(all="ignore"), _without_warnings():
            model.fit((x - mean) / spread, y, sample_weight=weight)
        weights, bias = model.coef_, model.intercept_
        if len(weights) == 1:  # two classes: the first one's function is 0
            weights, bias = np.vstack([0 * weights, weights]), np.concatenate([[0.0], bias])
        weights = weights / spread
        return Linear(torch.from_numpy(weights), torch.from_numpy(bias - weights @ mean))


def _without_warnings() -> Any:
    """Silence the note that the last steps still moved: the model is judged on held-out rows."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    return warnings.catch_warnings(action="ignore", category=ConvergenceWarning)
