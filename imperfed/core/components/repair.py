"""Repairs: what may rewrite the labels before training."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.context import ServerView, SiteView
from imperfed.core.exchange import Query, Updates
from imperfed.core.federation import Federation
from imperfed.core.labels import Labels, Probabilities


@dataclass(frozen=True)
class LabelDecision:
    """What a site decides about its own labels, one entry per row."""

    decided: Tensor
    """The label of each row after the repair."""
    confidence: Tensor
    why: Tensor
    """One number per row, which `Repair.reasons` puts into words."""
    noise: float
    """The estimated share of wrong labels; NaN where the site makes no estimate."""
    posterior: Tensor | None = None
    """The probability of every class, float64 [n, C]; None where the repair computes none."""
    joint: Tensor | None = None
    """[true class, given class]: the estimated shares of the site's rows, [C, C]; None where there is no estimate."""
    believed: bool = True
    """Whether training may use the posterior; else the labels as given are all there is."""

    def tree(self) -> Tree:
        """Return the decision as a site keeps it."""
        noise, believed = torch.tensor(self.noise, dtype=torch.float64), torch.tensor(self.believed)
        tree = {"decided": self.decided, "confidence": self.confidence, "why": self.why, "noise": noise}
        tree["believed"] = believed
        beliefs = {"posterior": self.posterior, "joint": self.joint}
        return tree | {name: belief for name, belief in beliefs.items() if belief is not None}

    @classmethod
    def of(cls, memory: Tree) -> LabelDecision:
        """Return the decision that a site has kept."""
        posterior, joint = memory.get("posterior"), memory.get("joint")
        noise, believed = float(memory["noise"]), bool(memory["believed"])
        return cls(memory["decided"], memory["confidence"], memory["why"], noise, posterior, joint, believed)

    def labels(self, kind: type[Labels], classes: int) -> Labels:
        """Return the labels to train on, of the kind that the repair gives."""
        if kind is Probabilities:
            assert self.posterior is not None
            given = torch.nn.functional.one_hot(self.decided, classes)
            return Probabilities((self.posterior if self.believed else given).float(), classes)
        return kind(self.decided, classes)


@dataclass(frozen=True)
class RepairVerdict:
    """Whether the data support a repair: what a repair finds out about itself before sites decide."""

    alone: tuple[str, ...]
    """The sites that are left as they are because they do not."""
    figures: Mapping[str, float]
    """What it rests on, by name."""
    words: str
    """The same as a part of a sentence."""
    joint: Tensor | None = None
    """[true class, given class]: the estimated shares of all sites' rows, [C, C]; None where there is no estimate."""


@dataclass(frozen=True)
class RepairResult:
    """What a repair did: labels as given, reasons, one entry per training row, and what every site decided."""

    given: Tensor
    decisions: tuple[LabelDecision, ...]
    reason: tuple[str, ...]
    sent: dict[str, tuple[int, ...]]
    """Name and largest shape of everything that left a site."""
    down: int
    up: int
    """Bytes."""
    notes: tuple[str, ...] = ()
    verdict: RepairVerdict | None = None
    """None where the repair makes no check of itself."""

    @property
    def decided(self) -> Tensor:
        """The labels of all training rows after the repair."""
        return torch.cat([decision.decided for decision in self.decisions])

    @property
    def noise(self) -> tuple[float | None, ...]:
        """The estimated share of wrong labels at each site; None where it makes no estimate."""
        return tuple(None if math.isnan(decision.noise) else decision.noise for decision in self.decisions)


@dataclass(frozen=True)
class Repair(ABC):
    """A step before training that may rewrite the sites' labels and group the sites.

    It is a sequence of exchanges with all sites, the last of which is always the same: every site decides about its own
    labels. The server never sees a label. Its memory lasts as long as the repair, and so does a site's.
    """

    name: ClassVar[str]
    labels: ClassVar[type[Labels]]
    reference: ClassVar[bool] = False
    """Whether it is the repair to begin with for this kind of labels."""
    same_bits: ClassVar[bool] = False
    """Whether each site computes on one thread, so that its sums have the same bits on any machine.

    Sites in one process then answer side by side.
    """

    @abstractmethod
    def check(self, federation: Federation) -> None:
        """Raise `UsageError`, before anything is sent, if these data cannot be repaired."""

    def init_server(self, context: ServerView) -> Tree:
        """Return what the server remembers before the first exchange."""
        return {}

    def exchanges(self, classes: tuple[str, ...], trusted: bool) -> tuple[Query, ...]:
        """Return the exchanges before the sites decide, in order; an answer may change what `SiteView.memory` holds.

        It puts other tensors there and never writes into those it finds. `trusted`: whether the server has clean rows.
        """
        return ()

    def send_findings(self, server: Tree, site: int) -> Tree:
        """Return what a site receives before it decides."""
        return {}

    @abstractmethod
    def decide(self, classes: tuple[str, ...], site: SiteView) -> LabelDecision:
        """Return what a site decides about its labels, from its rows, its memory and the server's findings."""

    @abstractmethod
    def reasons(self, classes: tuple[str, ...], decision: LabelDecision) -> tuple[str, ...]:
        """Return why each label is what it is, in words."""

    def verdict(self, server: Tree, sites: Sequence[str]) -> RepairVerdict | None:
        """Return whether the data support the repair, from the server's memory at the end; None: it does not check."""
        return None

    def send_verdict(self, server: Tree, site: int) -> Tree:
        """Return the figures from which a site puts the verdict into words: its own and those of all sites together."""
        return {}

    def groups_of(self, server: Tree) -> tuple[int, ...]:
        """Return the group of every site, from the server's memory at the end; empty where none were formed."""
        return ()

    def gives(self, wanted: type[Labels]) -> type[Labels]:
        """Return the kind of labels that sites train on after the repair; `wanted`: the kind that training asks for."""
        return self.labels

    def conversation(self, classes: tuple[str, ...], trusted: bool) -> tuple[Query, ...]:
        """Return all exchanges; the last leaves a `LabelDecision` and nothing else in every site's memory."""

        def respond(site: SiteView) -> Tree:
            decision = self.decide(classes, site)
            site.memory.clear()
            site.memory.update(decision.tree())
            changed = (decision.decided != site.labels.values).sum()
            return {"changed": changed} | ({} if math.isnan(decision.noise) else {"noise": site.memory["noise"]})

        last = Query("decide", _count_changes, self.send_findings, respond=respond, partial=True)
        return *self.exchanges(classes, trusted), last


def _count_changes(server: Tree, updates: Updates, context: ServerView) -> Tree:
    """Remember how many labels each site changed, and the share that it estimates to be wrong (NaN: no estimate).

    Both are the sites' claims and are used in the report only.
    """
    return server | {
        "changed": torch.stack([_number(answer.get("changed"), 0).long() for answer in updates.parts]),
        "noise": torch.stack([_number(answer.get("noise"), math.nan) for answer in updates.parts]),
    }


def _number(claim: Tensor | None, otherwise: float) -> Tensor:
    """Return a claim that is one number; `otherwise` where there is none, or it is something else."""
    return torch.tensor(otherwise).double() if claim is None or claim.numel() != 1 else claim.reshape(()).double()
