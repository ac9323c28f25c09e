"""FedALC: federated averaging by exploring label correlations (An et al.). Equation numbers: the journal version.

    symbol       where it lives                          does it travel
    theta        server["w"] without its head            down and up, mean of all
    w_y          a row of the head of server["w"]        down and up with all of W; in the paper where class y is held
    M_i          digests, see label_collection           up, once
    sigma_uu'    server, counts n_u and co_uu'           never
    N_K(u)       found anew each round by the server     never

All of FedAwS, with a weight a pair: classes that seldom come together are pushed apart harder. With every weight 1 it
is FedAwS, with `lam` 0 FedAvg.

Departs from the paper in: the weights gamma of Eq. 10 are taken times C - 1, so that their mean is 1 and lambda means
what it means in FedAwS; the margin nu is 1 also with neighbours (see FedAwS); the steps are FedAwS's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from imperfed.algorithms.fedaws import FedAwS
from imperfed.algorithms.label_collection import PAIRS, Collecting
from imperfed.core.batch import Tree
from imperfed.core.errors import unknown
from imperfed.core.exchange import Exchange
from imperfed.nn.embeddings import WEIGHTS, Force, Pairs, Spread


@dataclass(frozen=True)
class FedALC(Collecting, FedAwS):
    """Averaging on the positive loss; the server pushes class embeddings apart by how seldom they come together."""

    name: ClassVar[str] = "fedalc"
    weights: str = "normalised"  # g_uu': normalised (Eq. 10), sigma (Eq. 9) or counts (n sigma)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_collecting()
        if self.weights not in WEIGHTS:
            raise unknown("weights of fedalc", self.weights, WEIGHTS)

    def opening(self) -> tuple[Exchange, ...]:
        return (*super().opening(), self.collection())

    def force(self, server: Tree) -> Force:
        pairs = Pairs.from_tree(server, PAIRS)
        weigh = WEIGHTS[self.weights]
        return Spread(self.neighbours, self.nu, self.mined, lambda a, b: weigh(pairs, a, b))  # Eqs. 8, 10, 11

    def figures(self, server: Tree) -> dict[str, float]:
        return self.privacy(server) | super().figures(server)
