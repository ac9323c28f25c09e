"""Methods still to come, each as short as its formulas: the proof that the interface fits them.

They also pass the contract suite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import one_hot

from imperfed.core import Algorithm, Hall, Tree, Updates


@dataclass(frozen=True)
class Krum(Algorithm):
    name: ClassVar[str] = "krum"
    f: int = 0

    def scores(self, V: Tensor) -> Tensor:
        """The sum of the squared distances to the n - f - 2 nearest others."""
        D = (V.unsqueeze(0) - V.unsqueeze(1)).square().sum(-1)
        nearest = max(1, len(V) - self.f - 2)
        return D.sort(1).values[:, 1 : 1 + nearest].sum(1)

    def merge(self, server: Tree, updates: Updates, hall: Hall) -> Tree:
        best = self.scores(updates["w"] - server["w"]).argmin()
        return server | updates.average(one_hot(best, len(updates.who)).float())
