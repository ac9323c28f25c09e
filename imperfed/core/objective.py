"""The base class of objectives: local losses over one kind of labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from imperfed.core.batch import Batch, Tree
from imperfed.core.hooks import overridden_hooks
from imperfed.core.labels import Labels


@dataclass(frozen=True)
class Objective(ABC):
    """A local loss over one kind of labels, with a memory of every example. Works with any algorithm."""

    name: ClassVar[str]
    labels: ClassVar[type[Labels]]
    reference: ClassVar[bool] = False
    """Whether it is the default for this kind of labels."""
    auto: ClassVar[Mapping[str, tuple[Any, ...]] | None] = None
    """What `auto` tries of the objective's settings, {} being its defaults; None: `auto` leaves the objective out."""
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """The setting of its own that a fair comparison tries beside the learning rate, and its values; {}: none."""
    resolves: ClassVar[bool] = True
    """Whether it decides between the classes that a label leaves open, rather than counting each by its share."""
    changes_inputs: ClassVar[bool] = False
    """Whether it trains on changed or mixed inputs, which sparse features, stored by their numbers, do not allow."""
    row_independent: ClassVar[bool] = True
    """Whether an example's loss and memory depend on that example alone, not on its batch."""
    reads_network: ClassVar[bool] = False
    """Whether it looks inside the network, such as at the head, which several networks in one program do not show."""

    overridden: ClassVar[frozenset[str]] = frozenset()
    """The hooks that the class overrides."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.overridden = overridden_hooks(cls, Objective)

    @property
    def has_site_stats(self) -> bool:
        """Whether it uses anything about all labels of a site together."""
        return "site_stats" in self.overridden

    @classmethod
    def accepts(cls, kind: type[Labels]) -> bool:
        """Return whether it learns from this kind of labels."""
        return kind is cls.labels

    def draws(self, steps: int, batch: int, generator: torch.Generator) -> Tree:
        """Return the random numbers of a round's local steps: [steps], or [steps, batch, ...] for numbers per row.

        `loss` finds them in `batch.draws`, which is empty where a loss is asked for and nothing is trained.
        """
        return {}

    def init_rows(self, labels: Any) -> Tree:
        """Return the memory of each example before the first round, [n, ...]."""
        return {}

    def site_stats(self, labels: Any) -> Tree:
        """Return what describes all labels of one site together, such as counts; every batch of that site carries it.

        `loss` must broadcast it over rows: in one pass over several sites, each row carries its own site's.
        """
        return {}

    @abstractmethod
    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        """Return the loss of each example [B], and anything that `update_rows` needs from this forward pass."""

    def update_rows(self, net: Callable[[Tensor], Tensor], batch: Batch, out: Any) -> Tree:
        """Return the batch's new memory after the step; the network is in evaluation mode, without gradients."""
        return {}

    def infer_labels(self, logits: Tensor, labels: Any, rows: Tree) -> Tensor | None:
        """Return the inferred labels: each class's probability for each training example. None: it infers none."""
        return None
