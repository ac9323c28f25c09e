"""Mixup, the attack that mixes victims with their neighbours (thesis, Algorithm 7).

    symbol      where it lives                                          does it travel
    alpha       alpha                                                   never
    D_u, D_t    rows.given, rows.inside: who may be a neighbour         never
    dist        distance(), of groups plus of candidate sets            never

Further symbols: see `attacks/base.py`. Neighbours are searched among the original rows, so that the order of the rows
does not matter. Candidate sets become memberships between 0 and 1, which the objective must accept as weights.

Departs from the thesis in: ties go to the lowest row, and a victim without any neighbour at its site is left unchanged;
the thesis specifies neither, nor alpha.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.attacks.base import FairnessAttack, as_sets
from imperfed.core.context import SLICE
from imperfed.core.errors import UsageError
from imperfed.core.federation import Attribute
from imperfed.core.labels import Candidates, Exact, Labels, Memberships


@dataclass(frozen=True)
class Mixup(FairnessAttack):
    """Mix the rows that contradict the link between group and class with the nearest rows that support it."""

    name: ClassVar[str] = "mixup"
    rewrites: ClassVar[tuple[type[Labels], ...]] = (Candidates, Exact, Memberships)
    alpha: float = 0.5  # alpha, the victim's share in the mixture

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha <= 1:
            raise UsageError(f"attack.alpha is a share and must lie between 0 and 1; got {self.alpha}")

    def prepare(self, labels: Labels) -> Labels:
        labels = super().prepare(labels)
        return labels if isinstance(labels, Memberships) else Memberships(as_sets(labels).float(), labels.classes)

    def rewrite(
        self, x: Tensor, labels: Labels, attribute: Attribute | None, classes: tuple[str, ...]
    ) -> tuple[Tensor, Labels, str]:
        rows = self.rows(x, labels, attribute, classes)
        y, new_x, new_y, counts = labels.values, x.clone(), labels.values.clone(), []
        for victims, neighbours in ((rows.first, rows.given), (rows.second, rows.inside)):  # D_u line 4, D_t line 12
            i, D = victims.nonzero().flatten(), neighbours.nonzero().flatten()
            i = i if len(D) else i[:0]
            j = nearest(rows.groups, y, i, D)  # lines 8 and 16
            new_x[i] = self.alpha * x[i] + (1 - self.alpha) * x[j]  # lines 9 and 17
            new_y[i] = self.alpha * y[i] + (1 - self.alpha) * y[j]
            counts.append(len(i))
        lonely = int(rows.first.sum() + rows.second.sum()) - sum(counts)
        note = (
            f"{counts[0]} of {len(x)} rows mixed with the nearest row that may be {self.unprivileged}, and {counts[1]} "
            f"with the nearest that may be {self.target}; {lonely} had no neighbour and were left unchanged"
        )
        return new_x, Memberships(new_y, labels.classes), note


def nearest(groups: Tensor, y: Tensor, i: Tensor, D: Tensor) -> Tensor:
    """Return the row of D nearest to each of the rows i, ties to the lowest row."""
    neighbours = [i[:0]]
    for part in i.split(SLICE) if len(i) else ():
        dist = distance(groups[part], groups[D]) + distance(y[part], y[D])  # lines 6 and 14
        neighbours.append(D[dist.argmin(1)])
    return torch.cat(neighbours)


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Return |a_i - b_j|_2 for all pairs of rows; exact for sets, so that ties are ties."""
    return torch.cdist(a.double(), b.double(), compute_mode="donot_use_mm_for_euclid_dist")
