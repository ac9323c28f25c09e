"""Attacks: what an adversary rewrites in its rows, or falsifies in its updates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.errors import UsageError, positive
from imperfed.core.federation import Attribute, Federation
from imperfed.core.labels import Labels


@dataclass(frozen=True)
class Attack(ABC):
    """An adversary's rewriting of its own training rows, before training; or of its updates (`UpdateAttack`)."""

    name: ClassVar[str]
    adversaries: int = 3  # M; which sites they are is drawn by the data seed

    def __post_init__(self) -> None:
        positive("attack", adversaries=self.adversaries)

    @abstractmethod
    def rewrite(
        self, x: Tensor, labels: Labels, attribute: Attribute | None, classes: tuple[str, ...]
    ) -> tuple[Tensor, Labels, str]:
        """Return one adversary's new rows and labels, and what was changed, in words; leave the arguments unchanged."""

    def prepare(self, labels: Labels) -> Labels:
        """Return all sites' labels, converted to the kind that `rewrite` returns."""
        return labels


@dataclass(frozen=True)
class UpdateAttack(Attack):
    """An adversary's falsification of what it sends: it trains on its rows as they are and sends another update."""

    def rewrite(
        self, x: Tensor, labels: Labels, attribute: Attribute | None, classes: tuple[str, ...]
    ) -> tuple[Tensor, Labels, str]:
        return x, labels, "its rows stay as they are, and every update that it sends is falsified"

    @abstractmethod
    def falsify(self, own: Tensor, honest: Tensor) -> Tensor:
        """Return the updates that the adversaries send, one row for each of them; leave the arguments unchanged.

        An update is the difference between a site's weights after training and those that it was sent. `own`: the
        adversaries' updates from honest training, [m, S]; `honest`: those of the other sites in this round, [h, S].
        """


@dataclass(frozen=True)
class Adversaries:
    """The sites that falsify their updates, by their numbers in the federation, and how they do it."""

    attack: UpdateAttack
    sites: tuple[int, ...]

    def falsify(self, sites: Sequence[int], sent: Tensor, w: Tensor) -> Tensor:
        """Return the weights as they arrive, from the weights sent to these sites and those after honest training."""
        bad = torch.tensor([k in self.sites for k in sites], device=w.device)
        if not bad.any():
            return w
        moved = w - sent
        honest = moved if bad.all() else moved[~bad]  # with no honest answer to see, they go by their own
        false = w.clone()
        false[bad] = sent[bad] + self.attack.falsify(moved[bad], honest)
        return false


@dataclass(frozen=True)
class AttackedFederation:
    """A federation some of whose sites have rewritten their rows."""

    federation: Federation
    adversaries: tuple[int, ...]
    notes: tuple[str, ...]


def draw_adversaries(attack: Attack, sites: int, draw: torch.Generator) -> tuple[int, ...]:
    """Return the numbers of the sites that attack."""
    if attack.adversaries >= sites:
        raise UsageError(f"attack.adversaries is {attack.adversaries}, but there are {sites} sites; leave some honest")
    return tuple(sorted(torch.randperm(sites, generator=draw)[: attack.adversaries].tolist()))


def apply_attack(attack: Attack, federation: Federation, draw: torch.Generator) -> AttackedFederation:
    """Let the adversaries rewrite their rows."""
    adversaries = draw_adversaries(attack, len(federation.sites), draw)
    # Several sites may hold the same example, and one of them may rewrite it: each gets its own copy.
    x, labels, notes = federation.inputs(0, federation.starts[-1]).clone(), attack.prepare(federation.labels), []
    values = labels.values.clone()
    for k in adversaries:
        a, b = federation.starts[k], federation.starts[k + 1]
        new_x, new_labels, note = attack.rewrite(x[a:b], labels.between(a, b), federation.attribute, federation.classes)
        x[a:b], values[a:b] = new_x, new_labels.values
        notes.append(f"{attack.name} at {federation.sites[k]}: {note}")
    return AttackedFederation(
        replace(federation, x=x, at=None, labels=type(labels)(values, labels.classes)).check(),
        adversaries,
        tuple(notes),
    )
