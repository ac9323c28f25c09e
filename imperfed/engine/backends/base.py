"""What the engine needs from a backend: local processes, one program on a GPU, or real sites over a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult
from imperfed.core.exchange import Updates
from imperfed.core.labels.validity import Validity
from imperfed.core.mechanism import Summed
from imperfed.engine.failures import Failure
from imperfed.engine.local_training import Local, Plan
from imperfed.engine.population import Scores


@dataclass(frozen=True)
class Reply:
    """One site's answer in one exchange; its tensors stay unchanged until the next exchange.

    Where the answer is in another process, its tensors are on torch's device "meta": they have shapes and no numbers.
    """

    loss: float
    up: Tree


class Backend(Protocol):
    """Carries out what the engine asks of the sites."""

    notes: list[str]
    """Sentences for the log; the engine collects and clears them after every round."""
    opens_on_device: bool
    """Whether the exchanges before round 0 run on the device of the run, and not in host memory as long as `start`."""
    can_break: bool
    """Whether the end of another process ends the run, which then writes checkpoints more often."""

    def start(self) -> None:
        """Begin the rounds: all exchanges before round 0 are done."""

    def ask(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Reply | Failure]:
        """Return the answers to an exchange. A site that failed may be asked again and starts from the same state."""

    def together(self, who: Sequence[int], replies: Mapping[int, Reply]) -> Mapping[str, Tensor]:
        """Return the answers of these sites in the last exchange, one row per site."""

    def shares(self, round: int, number: int, summed: Summed, updates: Updates) -> dict[int, Tensor | Failure]:
        """Return the shares of the sites of a secret sum, whose updates sites in this process have handed over."""

    def sum_gradients(self, round: int, number: int, sites: Sequence[int], weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return sum_k p_k grad f_k at the weights sent, and every site's mean loss."""

    def evaluate(self, ahead: bool, sites: Sequence[int] | None = None) -> tuple[dict[int, Scores], Scores]:
        """Return the scores of the sites' models on their own test sets, and of the global model if there is one.

        `ahead`: whether another round may follow, of which a backend may ask for the first answers at the same time.
        `sites`: those whose scores are wanted; None: all.
        """

    def validate(self, sites: Sequence[int] | None = None) -> dict[int, Validity]:
        """Return how far the sites' models agree with the rows that they hold out; called after `evaluate`."""

    def gather(self) -> None:
        """Bring what the sites remember into the run's state, if it is elsewhere."""

    def scatter(self) -> None:
        """Let the sites remember what the run's state says, after it was changed."""

    def inferred_labels(self) -> Tensor | None:
        """Return the inferred labels of every training row, as probabilities; None where none are inferred."""

    def close(self) -> None:
        """Shut down."""


@runtime_checkable
class TrainsAtServer(Protocol):
    """A backend that can also make the server's local steps, on rows that the server holds."""

    def train_at_server(self, local: Local, plan: Plan, down: Tree, lr: float) -> LocalResult | None:
        """Return the network after these steps, until the next call; None where the loop must make them."""


def stacked(who: Sequence[int], replies: Mapping[int, Reply]) -> Tree:
    """Return answers that are in this process, one row per site."""
    return {name: torch.stack([replies[k].up[name] for k in who]) for name in replies[who[0]].up}
