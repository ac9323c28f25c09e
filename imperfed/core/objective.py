"""A local loss over one kind of labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from imperfed.core.batch import Batch, Tree
from imperfed.core.hooks import overridden_hooks
from imperfed.core.labels import Labels


@dataclass(frozen=True)
class Objective(ABC):
    """A local loss over one kind of labels, with what it remembers of every example. Works under any algorithm."""

    name: ClassVar[str]
    labels: ClassVar[type[Labels]]
    reference: ClassVar[bool] = False
    """Whether it is what an algorithm minimises on this kind of labels when nothing else was chosen."""
    row_independent: ClassVar[bool] = True
    """Whether an example's loss and memory depend on the network's answer to it alone, not on others in its batch."""

    overridden: ClassVar[frozenset[str]] = frozenset()
    """The hooks that a class defines itself."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.overridden = overridden_hooks(cls, Objective)

    @property
    def has_site_stats(self) -> bool:
        """Whether it knows anything of all labels of a site together."""
        return "site_stats" in self.overridden

    @classmethod
    def accepts(cls, kind: type[Labels]) -> bool:
        """Whether it learns from this kind of labels."""
        return kind is cls.labels

    def init_rows(self, labels: Any) -> Tree:
        """Memory of each example before the first round, [n, ...]."""
        return {}

    def site_stats(self, labels: Any) -> Tree:
        """What holds of all labels of one site together, such as counts; every batch of that site carries it.

        `loss` must broadcast it over rows: in one pass for all sites each row carries its own site's.
        """
        return {}

    @abstractmethod
    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        """The loss of each example [B], and anything `update_rows` wants from this forward pass."""

    def update_rows(self, net: Callable[[Tensor], Tensor], batch: Batch, out: Any) -> Tree:
        """New memory of the batch's examples, after the step; the network is in evaluation mode, without gradient."""
        return {}

    def infer_labels(self, logits: Tensor, labels: Any, rows: Tree) -> Tensor | None:
        """Probability of each class for each training example: the labels worked out. None where it works out none."""
        return None
