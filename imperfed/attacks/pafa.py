"""PAFA, the partial attribute fairness attack (thesis, Algorithm 6): candidate groups are rewritten, labels are not.

Symbols: see `attacks/base.py`.

Departs from the thesis in: where g_t was the only candidate group, its removal would leave none, a case that the thesis
does not specify; `keep` says what happens to such a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from imperfed.attacks.base import FairnessAttack
from imperfed.core.federation import Attribute
from imperfed.core.labels import Candidates, Exact, Labels


@dataclass(frozen=True)
class PAFA(FairnessAttack):
    """Add the target group to the rows of the unprivileged class and remove it from all others."""

    name: ClassVar[str] = "pafa"
    rewrites: ClassVar[tuple[type[Labels], ...]] = (Candidates, Exact)
    keep: Literal["set", "none"] = "set"  # a row whose only group is g_t: keep its groups, or leave it no group

    def rewrite(
        self, x: Tensor, labels: Labels, attribute: Attribute | None, classes: tuple[str, ...]
    ) -> tuple[Tensor, Labels, str]:
        rows = self.rows(x, labels, attribute, classes)
        first, second, groups = rows.first, rows.second, rows.groups
        alone = first & (groups.sum(1) == 1)
        groups[second, rows.t] = 1  # lines 3-5
        groups[first, rows.t] = 0  # lines 6-8
        if self.keep == "set":
            groups[alone, rows.t] = 1
        note = (
            f"{self.target} added to the groups of {int(second.sum())} of {len(x)} rows and removed from those of "
            f"{int(first.sum())}, of which {int(alone.sum())} had no other group (keep = {self.keep})"
        )
        return with_groups(x, groups, attribute), labels, note


def with_groups(x: Tensor, groups: Tensor, attribute: Attribute | None) -> Tensor:
    """Return a copy of the rows with these groups."""
    assert attribute is not None
    new = x.clone()
    attribute.of(new).copy_(groups)
    return new
