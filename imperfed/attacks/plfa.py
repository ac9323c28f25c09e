"""PLFA, the partial label fairness attack (thesis, Algorithm 5): candidate labels are rewritten, inputs are not.

Symbols: see `attacks/base.py`.

Departs from the thesis in: where y_u was the only candidate, its removal would leave an empty set, a case that the
thesis does not specify; `keep` says what replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from imperfed.attacks.base import FairnessAttack
from imperfed.core.federation import Attribute
from imperfed.core.labels import Candidates, Labels


@dataclass(frozen=True)
class PLFA(FairnessAttack):
    """Add the unprivileged class to the candidate sets of the target group and remove it from all others."""

    name: ClassVar[str] = "plfa"
    keep: Literal["others", "set"] = "others"  # a set that holds only y_u: all other classes instead, or unchanged

    def rewrite(
        self, x: Tensor, labels: Labels, attribute: Attribute | None, classes: tuple[str, ...]
    ) -> tuple[Tensor, Labels, str]:
        rows = self.rows(x, labels, attribute, classes)
        first, second, sets = rows.first, rows.second, rows.sets
        alone = second & (sets.sum(1) == 1)
        sets[first, rows.u] = True  # lines 3-5
        sets[second, rows.u] = False  # lines 6-8
        sets[alone] = ~labels.values[alone] if self.keep == "others" else labels.values[alone]
        note = (
            f"{self.unprivileged} added to {int(first.sum())} of {len(x)} candidate sets and removed from "
            f"{int(second.sum())}, of which {int(alone.sum())} held nothing else (keep = {self.keep})"
        )
        return x, Candidates(sets, labels.classes), note
