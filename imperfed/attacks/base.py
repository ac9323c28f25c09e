"""The common part of the three fairness attacks of the thesis (Sec. 5.3): the group they target, the rows they change.

    symbol      where it lives                                  does it travel
    D_m         x, labels: one adversary's own training rows    never
    P^_i        attribute.of(x)                                 never
    g_t, y_u    target and unprivileged, by name                never

A row is a victim of the first kind if g_t is among its groups and y_u is not among its candidates, and of the second
kind if it is the other way round (Sec. 5.3.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.components import Attack
from imperfed.core.errors import UsageError, unknown
from imperfed.core.federation import Attribute
from imperfed.core.labels import Candidates, Exact, Labels, Memberships


@dataclass(frozen=True)
class TargetRows:
    """An adversary's rows, each as a set of groups and a set of classes."""

    groups: Tensor
    """P^, copied: [n, G]."""
    sets: Tensor
    """y, copied: bool [n, C]."""
    t: int
    u: int

    @property
    def inside(self) -> Tensor:
        """Whether each row may belong to the target group: P^_i[t] = 1."""
        return self.groups[:, self.t] > 0.5

    @property
    def given(self) -> Tensor:
        """Whether each row has the unprivileged class as a candidate: y_i[u] = 1."""
        return self.sets[:, self.u]

    @property
    def first(self) -> Tensor:
        """Whether each row is a victim of the first kind."""
        return self.inside & ~self.given

    @property
    def second(self) -> Tensor:
        """Whether each row is a victim of the second kind."""
        return ~self.inside & self.given


@dataclass(frozen=True)
class FairnessAttack(Attack):
    """An attack that links a group of people to a class that harms them."""

    rewrites: ClassVar[tuple[type[Labels], ...]] = (Candidates,)
    """The kinds of labels it can rewrite."""
    target: str = ""  # g_t, a group of the sensitive attribute; empty: fairness.target
    unprivileged: str = ""  # y_u, a class; empty: fairness.unprivileged

    def prepare(self, labels: Labels) -> Labels:
        if not isinstance(labels, self.rewrites):
            able = " or ".join(kind.kind for kind in self.rewrites)
            raise UsageError(f"{self.name} works on {able} labels, but the sites hold {labels.kind} labels here")
        return labels

    def rows(self, x: Tensor, labels: Labels, attribute: Attribute | None, classes: tuple[str, ...]) -> TargetRows:
        """Return the adversary's rows; refuse data without the target group or the unprivileged class."""
        if attribute is None:
            raise UsageError(f"{self.name} links a group to a class: it needs data with a sensitive attribute")
        if self.target not in attribute.values:
            raise unknown(f"group of {attribute.name} (attack.target)", self.target, attribute.values)
        if self.unprivileged not in classes:
            raise unknown("class (attack.unprivileged)", self.unprivileged, classes)
        t, u = attribute.values.index(self.target), classes.index(self.unprivileged)
        return TargetRows(attribute.of(x).clone(), as_sets(labels), t, u)


def as_sets(labels: Labels) -> Tensor:
    """Return the labels as candidate sets, copied: bool [n, C]."""
    if isinstance(labels, Exact):
        return torch.eye(labels.classes, dtype=torch.bool)[labels.values]
    return labels.values > 0.5 if isinstance(labels, Memberships) else labels.values.clone()
