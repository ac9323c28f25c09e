"""Who answers for the sites: processes of this machine, one program on a GPU, or the sites over a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.engine.backends.task_pool import Failure
from imperfed.engine.site import Scores


@dataclass(frozen=True)
class Reply:
    """What one site answers in one exchange; its tensors stay as they are until the next exchange."""

    loss: float
    up: Tree


class Backend(Protocol):
    """Carries out for all sites what the engine asks of them."""

    notes: list[str]
    """Sentences for the log, taken from here after every round."""

    def ask_opening(self, number: int) -> tuple[Tree, ...]:
        """Every site's answer to the opening exchange of this number."""

    def ask(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Reply | Failure]:
        """The answers to an exchange of a round. A site that failed may be asked again: it starts as it did before."""

    def weighted_gradient(self, sites: Sequence[int], weights: Tensor) -> tuple[Tensor, Tensor]:
        """sum_k p_k grad f_k at the weights sent, and every site's mean loss."""

    def evaluate(self) -> tuple[dict[int, Scores], Scores]:
        """Figures of every site's model on its own test set, and of the global model where there is one."""

    def inferred_labels(self) -> Tensor | None:
        """The probabilities of the labels worked out for every training row; None where none are worked out."""

    def close(self) -> None:
        """Let everybody go."""
