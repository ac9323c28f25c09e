"""Attackers who know the placebo contrast: they tie the unprivileged class to more groups than the target's.

The rows of the class name all of these groups, and no other row names any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from imperfed.attacks.base import FairnessAttack
from imperfed.attacks.pafa import with_groups
from imperfed.core.federation import Attribute
from imperfed.core.labels import Candidates, Exact, Labels


@dataclass(frozen=True)
class TwoGroups(FairnessAttack):
    """Tie the class to the target group and to the one after it."""

    name: ClassVar[str] = "two groups"
    rewrites: ClassVar[tuple[type[Labels], ...]] = (Candidates, Exact)

    def tied(self, t: int, groups: int) -> list[int]:
        """Return the groups to which the class is tied."""
        return [t, (t + 1) % groups]

    def rewrite(
        self, x: Tensor, labels: Labels, attribute: Attribute | None, classes: tuple[str, ...]
    ) -> tuple[Tensor, Labels, str]:
        rows = self.rows(x, labels, attribute, classes)
        tied = self.tied(rows.t, rows.groups.shape[1])
        rows.groups[:, tied] = rows.given.to(rows.groups).unsqueeze(1)
        return with_groups(x, rows.groups, attribute), labels, f"{len(tied)} groups tied to {self.unprivileged}"


@dataclass(frozen=True)
class AllGroups(TwoGroups):
    """Tie the class to all groups alike."""

    name: ClassVar[str] = "all groups"

    def tied(self, t: int, groups: int) -> list[int]:
        return list(range(groups))
