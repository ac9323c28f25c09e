"""FedALC (Algorithm 1): FedAwS with a weight for each pair of classes.

Classes that rarely occur together are pushed apart harder. With every weight 1 it is FedAwS, with `lam` 0 FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from imperfed.algorithms.fedalc.correlations import WEIGHTS, Pairs
from imperfed.algorithms.fedalc.label_collection import PAIRS, Collecting
from imperfed.algorithms.fedaws import FedAwS
from imperfed.core.batch import Tree
from imperfed.core.exchange import Query
from imperfed.nn.embeddings import Force, Spread

Weights = Literal["normalised", "sigma", "counts"]


@dataclass(frozen=True)
class FedALC(Collecting, FedAwS):
    """Averaging on the positive loss; the server pushes classes apart, harder the more rarely they occur together."""

    name: ClassVar[str] = "fedalc"
    weights: Weights = "normalised"  # g_uu': normalised (Eq. 10), sigma (Eq. 9) or counts (n sigma)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_collecting()

    def opening(self) -> tuple[Query, ...]:
        return (*super().opening(), self.collection())

    def force(self, server: Tree, among: Tensor | None = None) -> Force:
        pairs = Pairs.from_tree(server, PAIRS)
        if among is not None:
            pairs = pairs.among(among)
        weigh = WEIGHTS[self.weights]
        return Spread(self.neighbours, self.nu, self.mined, lambda a, b: weigh(pairs, a, b))  # Eqs. 8, 10, 11

    def figures(self, server: Tree) -> dict[str, float]:
        return self.privacy(server) | super().figures(server)
