"""What goes with any algorithm: repairs of labels before it, attacks on it, defences around its merge.

As algorithms, they are frozen dataclasses whose fields are settings, found by their `name` in their package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext
from imperfed.core.errors import UsageError, positive
from imperfed.core.exchange import Updates
from imperfed.core.federation import Attribute, Federation
from imperfed.core.labels import Labels


@dataclass(frozen=True)
class Attack(ABC):
    """An adversary's rewriting of its own training rows, before training."""

    name: ClassVar[str]
    adversaries: int = 3  # M; which sites they are is drawn by the data seed

    def __post_init__(self) -> None:
        positive("attack", adversaries=self.adversaries)

    @abstractmethod
    def rewrite(
        self, x: Tensor, labels: Labels, attribute: Attribute | None, classes: tuple[str, ...]
    ) -> tuple[Tensor, Labels, str]:
        """One adversary's new rows and labels, and what was changed, in words. What is given must not be changed."""

    def prepare(self, labels: Labels) -> Labels:
        """All sites' labels in the kind that rewritten ones have."""
        return labels


@dataclass(frozen=True)
class AttackedFederation:
    """A federation some of whose sites have rewritten their rows."""

    federation: Federation
    adversaries: tuple[int, ...]
    notes: tuple[str, ...]


def apply_attack(attack: Attack, federation: Federation, draw: torch.Generator) -> AttackedFederation:
    """Let the adversaries rewrite their rows."""
    K = len(federation.sites)
    if attack.adversaries >= K:
        raise UsageError(f"attack.adversaries is {attack.adversaries}, but there are {K} sites; leave some honest")
    adversaries = tuple(sorted(torch.randperm(K, generator=draw)[: attack.adversaries].tolist()))
    # Of an example that sits at several sites every site gets a copy: one of them may rewrite it.
    x, labels, notes = federation.inputs(0, federation.starts[-1]).clone(), attack.prepare(federation.labels), []
    values = labels.values.clone()
    for k in adversaries:
        a, b = federation.starts[k], federation.starts[k + 1]
        new, told, note = attack.rewrite(x[a:b], labels.between(a, b), federation.attribute, federation.classes)
        x[a:b], values[a:b] = new, told.values
        notes.append(f"{attack.name} at {federation.sites[k]}: {note}")
    return AttackedFederation(
        replace(federation, x=x, at=None, labels=type(labels)(values, labels.classes)).check(),
        adversaries,
        tuple(notes),
    )


@dataclass(frozen=True)
class Defence(ABC):
    """A look at the answers before the algorithm merges them. Sites are numbered as in `updates.who`."""

    name: ClassVar[str]

    def check(self, federation: Federation, algorithm: Algorithm, on_duty: int) -> None:
        """Raise `UsageError`, before anything is trained, where it cannot work on these data or around this algorithm.

        `on_duty`: the number of sites that are asked in a round.
        """
        return

    def init_state(self, sites: int) -> Tree:
        """What the defence remembers at the server before round 0."""
        return {}

    @abstractmethod
    def inspect(
        self, memory: Tree, sent: Tree, updates: Updates, context: ServerContext
    ) -> tuple[Updates | None, Tree]:
        """The answers that the algorithm sees (None: none, all stays as it was), and the new memory.

        `sent`: "w" and "buffers" that each site started from, a row a site as in `updates`.
        """


@dataclass(frozen=True)
class RepairResult:
    """What a repair did: labels as given and as suggested, how sure it is and why, a row of the federation each."""

    given: Tensor
    suggested: Tensor
    confidence: Tensor
    reason: tuple[str, ...]
    noise: tuple[float | None, ...]
    """Estimated share of wrong labels at each site."""
    sent: dict[str, tuple[int, ...]]
    """Name and largest shape of everything that left a site."""
    down: int
    up: int
    """Bytes."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Repair(ABC):
    """One-shot work before training that may rewrite a site's labels and group the sites."""

    name: ClassVar[str]
    labels: ClassVar[type[Labels]]

    @abstractmethod
    def repair(self, federation: Federation, draw: torch.Generator) -> tuple[Federation, RepairResult]:
        """The federation with mended labels and groups, and what was done."""
