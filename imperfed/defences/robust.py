"""What the robust merging rules share: they hold as long as no more answers than declared are adversaries'."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from imperfed.auxiliary import Defence
from imperfed.core import Hall, Tree, Updates
from imperfed.errors import UsageError, not_negative


@dataclass(frozen=True)
class Robust(Defence):
    """A rule without memory that needs so many answers against so many adversaries."""

    adversaries: int = 3  # f, the most there may be

    def __post_init__(self) -> None:
        not_negative("defence", adversaries=self.adversaries)

    @abstractmethod
    def needs(self) -> int:
        """The fewest answers among which the rule holds."""

    @abstractmethod
    def rule(self, server: Tree, updates: Updates) -> Updates:
        """The answers that the algorithm sees instead."""

    def open(self, sites: int) -> Tree:
        if sites < self.needs():
            raise UsageError(
                f"{self.name} against {self.adversaries} adversaries needs at least {self.needs()} sites, and there "
                f"are {sites}; set defence.adversaries lower or use more sites"
            )
        return {}

    def inspect(self, memory: Tree, server: Tree, updates: Updates, hall: Hall) -> tuple[Updates | None, Tree]:
        if len(updates.who) < self.needs():
            hall.notes.append(
                f"{self.name}: {len(updates.who)} answers, but against {self.adversaries} adversaries it needs "
                f"{self.needs()}"
            )
            return None, memory
        return self.rule(server, updates), memory


def everywhere(rule: Callable[[Tensor], Tensor], updates: Updates) -> Updates:
    """As many answers as there were, each holding what the rule makes of all of them, name by name."""
    return replace(updates, trees={name: rule(t).expand_as(t) for name, t in updates.trees.items()})
