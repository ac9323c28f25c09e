"""The common part of the robust merge rules: they hold while no more answers than declared come from adversaries."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass, replace

from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.components import Defence
from imperfed.core.context import ServerContext
from imperfed.core.errors import UsageError, not_negative
from imperfed.core.exchange import Updates
from imperfed.core.federation import Federation


@dataclass(frozen=True)
class Robust(Defence):
    """A rule without memory that needs a minimum number of answers for a number of adversaries."""

    adversaries: int = 3  # f, the largest number of adversaries

    def __post_init__(self) -> None:
        not_negative("defence", adversaries=self.adversaries)

    @abstractmethod
    def needs(self) -> int:
        """Return the smallest number of answers for which the rule holds."""

    @abstractmethod
    def rule(self, updates: Updates) -> Updates:
        """Return the answers that the algorithm sees instead."""

    def check(self, federation: Federation, algorithm: Algorithm, on_duty: int) -> None:
        least = f"{self.name} against {self.adversaries} adversaries needs at least {self.needs()} sites"
        smallest = min(Counter(federation.groups).values(), default=len(federation.sites))
        if smallest < self.needs():
            where = " in the smallest group" if federation.groups else ""
            raise UsageError(
                f"{least}, and there are {smallest}{where}; set defence.adversaries lower or use more sites"
            )
        if on_duty < self.needs():
            raise UsageError(
                f"{least} in a round, and {on_duty} take part; set defence.adversaries lower or rounds.participation "
                "higher"
            )

    def inspect(
        self, memory: Tree, sent: Tree, updates: Updates, context: ServerContext
    ) -> tuple[Updates | None, Tree]:
        if len(updates.who) < self.needs():
            context.notes.append(
                f"{self.name}: {len(updates.who)} answers, but against {self.adversaries} adversaries it needs "
                f"{self.needs()}"
            )
            return None, memory
        return self.rule(updates), memory


@dataclass(frozen=True)
class Mixing(Robust):
    """A rule that mixes the answers of all sites and replaces every answer by the mixture."""

    def needs(self) -> int:
        return 2 * self.adversaries + 1

    def check(self, federation: Federation, algorithm: Algorithm, on_duty: int) -> None:
        super().check(federation, algorithm, on_duty)
        if algorithm.not_mixable_because:
            raise UsageError(
                f"{self.name} mixes all sites coordinate by coordinate, and under {algorithm.name} "
                f"{algorithm.not_mixable_because}; use krum, multi-krum or fairfedpapl"
            )


@dataclass(frozen=True)
class Everywhere(Mixing):
    """A rule that mixes the sites coordinate by coordinate."""

    @abstractmethod
    def mix(self, V: Tensor) -> Tensor:
        """Return the mixture of all sites' answers of one name, over the first dimension."""

    def rule(self, updates: Updates) -> Updates:
        return replace(updates, trees={name: self.mix(t).expand_as(t) for name, t in updates.trees.items()})
