"""Privacy around a method: what a site does to the weights that it sends, and what they then cost."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import UsageError, not_negative, positive
from imperfed.core.exchange import Train
from imperfed.core.privacy_cost import accounting, spent

FEWEST_SITES = 3
"""Of two sites, each could subtract its own update from the sum."""
LARGEST_WEIGHT = 0.5
SLIGHT = 1e-6
"""By how much weights may be rounded."""


@dataclass(frozen=True)
class PrivacyMechanism(ABC):
    """Gaussian noise that every site adds to the weights it sends; nothing else may leave it in a round."""

    name: ClassVar[str]
    sums: ClassVar[bool] = False
    """Whether the server gets the sum of a round's updates only: sites then answer twice (`SumMechanism`)."""
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
        """The standard deviation of the noise, divided by the most that the protected rows can change; 0: no noise."""

    @abstractmethod
    def protect(self, sent: Tensor, w: Tensor, key: bytes) -> Tensor:
        """Return the weights that a site sends instead of w; `sent`: those that it received.

        `key` decides the noise. Only the site may know it.
        """

    def epsilon(self, releases: int) -> float:
        """Return what so many rounds with a site cost it."""
        return spent(self.multiplier, self.delta, releases) if self.multiplier else math.inf

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
        if self.multiplier:
            accounting()
        if self.forbids(1):
            raise UsageError(
                f"one round costs epsilon {self.epsilon(1):.3g}, more than privacy.epsilon_max = {self.epsilon_max:g}; "
                "set more privacy.noise"
            )


@dataclass(frozen=True)
class SumMechanism(PrivacyMechanism):
    """Secure aggregation: the server gets the weighted sum of a round's updates, and no single one.

    A site first says that it has trained. Once the server has named the sites of the sum and their weights, each of
    them sends its share, to which it has added masks that cancel in the sum of exactly these shares.
    """

    sums: ClassVar[bool] = True

    def protect(self, sent: Tensor, w: Tensor, key: bytes) -> Tensor:
        return w  # it does not leave the site: only its share does

    @abstractmethod
    def share(self, sent: Tensor, w: Tensor, weight: float, summed: Summed, key: bytes) -> Tensor:
        """Return a site's share of the sum before masks, as whole numbers (int64); sums are taken modulo 2^64."""

    @abstractmethod
    def unfold(self, total: Tensor) -> Tensor | None:
        """Return the sum of weighted updates from the sum of shares; None if no updates can have this sum."""

    def check(self, algorithm: Algorithm, rounds: int) -> None:
        super().check(algorithm, rounds)
        if not algorithm.needs_only_the_mean:
            raise UsageError(
                f"privacy={self.name} gives the server the sum of the sites' updates, and {algorithm.name} looks at "
                "each of them when it merges them; choose a method that averages, such as fedavg, or privacy=site"
            )


@dataclass(frozen=True)
class Summed:
    """The sites of one sum, by their numbers, and the weight of each: all of them must know the same."""

    sites: tuple[int, ...]
    weights: tuple[float, ...]

    def objection(self) -> str:
        """Return why this sum would say too much about one of its sites; empty if it does not."""
        if len(set(self.sites)) < FEWEST_SITES or len(self.sites) != len(set(self.sites)):
            return f"a sum over {len(set(self.sites))} sites: {FEWEST_SITES} are needed to hide each of them"
        if len(self.weights) != len(self.sites) or not all(weight > 0 for weight in self.weights):
            return "a sum in which not every site has a weight"
        if not abs(math.fsum(self.weights) - 1) < SLIGHT or max(self.weights) > LARGEST_WEIGHT + SLIGHT:
            return f"a sum in which one site has more than {LARGEST_WEIGHT:.0%} of the weight, or all have not 100 %"
        return ""


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
