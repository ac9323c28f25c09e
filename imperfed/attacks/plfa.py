"""PLFA, the partial label fairness attack (thesis, Algorithm 5): candidate labels are rewritten, inputs are not.

Symbols: see `attacks/fairness.py`.

Departs from the thesis in: where y_u was the only candidate, its removal would leave an empty set, of which the thesis
says nothing; `keep` says what is put in its place.
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
    """Adds the unprivileged class to the target group's candidate sets and takes it from everybody else's."""

    name: ClassVar[str] = "plfa"
    keep: Literal["others", "set"] = "others"  # of a set of y_u alone: all other classes, or the set as it was

    def rewrite(
        self, x: Tensor, labels: Labels, attribute: Attribute | None, classes: tuple[str, ...]
    ) -> tuple[Tensor, Labels, str]:
        rows = self.rows(x, labels, attribute, classes)
        first, second, sets = rows.first, rows.second, rows.sets
        alone = second & (sets.sum(1) == 1)
        sets[first, rows.u] = True  # lines 3-5
        sets[second, rows.u] = False  # lines 6-8
        sets[alone] = ~labels.values[alone] if self.keep == "others" else labels.values[alone]
        told = (
            f"{self.unprivileged} added to {int(first.sum())} of {len(x)} candidate sets and removed from "
            f"{int(second.sum())}; of these {int(alone.sum())} held nothing else and became {self.keep}"
        )
        return x, Candidates(sets, labels.classes), told
