"""What the engine asks of a backend: processes of this machine, one program on a GPU, or real sites over a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.engine.failures import Failure
from imperfed.engine.population import Scores


@dataclass(frozen=True)
class Reply:
    """What one site answers in one exchange; its tensors stay as they are until the next exchange."""

    loss: float
    up: Tree


class Backend(Protocol):
    """Carries out for all sites what the engine asks of them."""

    notes: list[str]
    """Sentences for the log, taken from here after every round."""

    def ask(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Reply | Failure]:
        """Return the answers to an exchange. A site that failed may be asked again: it starts as it did before."""

    def sum_gradients(self, round: int, number: int, sites: Sequence[int], weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return sum_k p_k grad f_k at the weights sent, and every site's mean loss."""

    def evaluate(self) -> tuple[dict[int, Scores], Scores]:
        """Return figures of every site's model on its own test set, and of the global model where there is one."""

    def inferred_labels(self) -> Tensor | None:
        """Return the probabilities of the labels worked out for every training row; None where there are none."""

    def close(self) -> None:
        """Shut down."""
