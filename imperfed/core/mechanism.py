"""Privacy around a method: what a site does to the weights that it sends, and what they then cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import UsageError, not_negative, positive
from imperfed.core.exchange import Train
from imperfed.core.privacy_cost import accounting, spent


@dataclass(frozen=True)
class PrivacyMechanism(ABC):
    """Gaussian noise that every site adds to the weights it sends; nothing else may leave it in a round."""

    name: ClassVar[str]
    delta: float = 1e-5  # delta of (epsilon, delta)
    epsilon_max: float = 0.0  # the run ends before a round that would bring a site above it; 0: no limit

    def __post_init__(self) -> None:
        positive("privacy", delta=self.delta)
        not_negative("privacy", epsilon_max=self.epsilon_max)
        if self.delta >= 1:
            raise UsageError(f"setting privacy.delta must be below 1; got {self.delta:g}")

    @property
    @abstractmethod
    def multiplier(self) -> float:
        """The standard deviation of the noise, divided by the most that the protected rows can change."""

    @abstractmethod
    def protect(self, sent: Tensor, w: Tensor, key: bytes) -> Tensor:
        """Return the weights that a site sends instead of w; `sent`: those that it received.

        `key` decides the noise. Only the site may know it.
        """

    def epsilon(self, releases: int) -> float:
        """Return what so many rounds with a site cost it."""
        return spent(self.multiplier, self.delta, releases)

    def forbids(self, releases: int) -> bool:
        """Return whether so many rounds would cost a site more than it may spend."""
        return 0 < self.epsilon_max < self.epsilon(releases)

    def check(self, algorithm: Algorithm, rounds: int) -> None:
        """Raise `UsageError`, before training, if sites send more than weights, or can afford no round."""
        if why := more_than_weights(algorithm, rounds):
            raise UsageError(
                f"privacy={self.name} protects the weights that sites send once per round, and {algorithm.name} {why}; "
                "choose a method that sends weights only, such as fedavg, or leave privacy out"
            )
        accounting()
        if self.forbids(1):
            raise UsageError(
                f"one round costs epsilon {self.epsilon(1):.3g}, more than privacy.epsilon_max = {self.epsilon_max:g}; "
                "set more privacy.noise"
            )


def more_than_weights(algorithm: Algorithm, rounds: int) -> str:
    """Return what else than their weights, once per round, sites send under a method; empty if nothing."""
    if algorithm.pools_data:
        return "pools all rows"
    if opening := algorithm.opening():
        return f"asks for {opening[0].name!r} before round 1"
    for round in range(rounds):
        exchanges = algorithm.exchanges(round)
        if others := [exchange.name for exchange in exchanges if not isinstance(exchange, Train)]:
            return f"asks for {others[0]!r} in round {round + 1}"
        if len(exchanges) != 1:
            return f"has {len(exchanges)} exchanges in round {round + 1}"
    return f"sends {algorithm.sends_beside_weights} as well" if algorithm.sends_beside_weights else ""
