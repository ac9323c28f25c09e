"""Defences: what inspects the answers before an algorithm merges them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext
from imperfed.core.exchange import Query, Updates
from imperfed.core.federation import Attribute, Federation


@dataclass(frozen=True)
class Defence(ABC):
    """An inspection of the answers before the algorithm merges them. Sites are numbered as in `updates.who`."""

    name: ClassVar[str]

    def check(self, federation: Federation, algorithm: Algorithm, on_duty: int) -> None:
        """Raise `UsageError`, before training, if the defence cannot work with these data or this algorithm.

        `on_duty`: the number of sites that are asked in a round.
        """
        return

    def init_state(self, sites: int) -> Tree:
        """Return what the defence remembers at the server before round 0."""
        return {}

    def opening(self, attribute: Attribute | None) -> tuple[Query, ...]:
        """Return what the defence asks all sites once, before round 0, after the algorithm's own opening.

        The answers go to the defence's memory, to which they may add names.
        """
        return ()

    @abstractmethod
    def inspect(
        self, memory: Tree, sent: Tree, updates: Updates, context: ServerContext
    ) -> tuple[Updates | None, Tree]:
        """Return the answers that the algorithm merges (None: none, so the model stays the same), and the new memory.

        `sent`: the "w" and "buffers" that each site started from, one row per site as in `updates`.
        """
