"""The base classes of models that a site fits alone, and of what fitting returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from imperfed.core.batch import Tree
from imperfed.core.labels import Labels

Real = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Fitted(ABC):
    """A fitted model over k classes. Its fields are tensors, and they are all there is to it."""

    form: ClassVar[str]
    """The name under which it is stored."""

    @abstractmethod
    def probabilities(self, x: Tensor) -> Tensor:
        """Return the probability of each of its classes for every row, float32 [n, k]; `x`: [n, d]."""

    def module(self) -> nn.Module:
        """Return the same function of all rows at once as a module, from which a program can be exported."""
        return FittedModule(self)

    def tensors(self) -> Tree:
        """Return everything that the model consists of."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def of(cls, tensors: Tree) -> Self:
        """Return the model that consists of these tensors."""
        return cls(**{field.name: tensors[field.name] for field in fields(cls)})


class FittedModule(nn.Module):
    """A fitted model whose function needs no other modules."""

    def __init__(self, fitted: Fitted) -> None:
        super().__init__()
        self.fitted = fitted

    def forward(self, x: Tensor) -> Tensor:
        return self.fitted.probabilities(x)


@dataclass(frozen=True)
class ModelPart:
    """A fitted model and the classes that its columns stand for; `present`: the first column means absent."""

    fitted: Fitted
    classes: Tensor
    present: bool


@dataclass(frozen=True)
class AloneModel(ABC):
    """A family of models as a practitioner would set it up. Its fields are its settings."""

    name: ClassVar[str]

    @property
    def resolves(self) -> bool:
        """Whether it decides between the classes that a label leaves open, rather than counting each by its share."""
        return False

    def shortened(self, share: float) -> AloneModel:
        """Return the family with about this share of the work, if its work can be chosen."""
        return self

    @abstractmethod
    def fit(self, x: Tensor, labels: Labels, seed: int) -> tuple[ModelPart, ...]:
        """Fit one site's rows, whose labels name at least one class; together the parts cover what can be said."""

    @classmethod
    def grid(cls, kind: type[Labels], shape: tuple[int, ...]) -> tuple[Any, ...]:
        """Return the settings among which a practitioner would choose on held-out rows; the most usual one first.

        `kind`: of the labels; `shape`: of an input.
        """
        return (cls(),)
