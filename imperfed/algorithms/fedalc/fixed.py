"""FedALC-fixed (Sec. IV-C, Algorithm 2): class embeddings are learned once from label counts, then only theta."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch.nn.functional import normalize

from imperfed.algorithms._class_embeddings import HEAD, ClassEmbeddings
from imperfed.algorithms.fedalc.correlations import Fixed, Pairs
from imperfed.algorithms.fedalc.label_collection import PAIRS, Collecting
from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext
from imperfed.core.errors import not_negative, positive
from imperfed.core.exchange import Query, Updates
from imperfed.nn.embeddings import gradient


@dataclass(frozen=True)
class FedALCFixed(Collecting, ClassEmbeddings):
    """Averaging on the positive loss; class embeddings are learned before round 0 from which labels occur together."""

    name: ClassVar[str] = "fedalc-fixed"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"lr_fixed": (0.1, 1.0, 0.01)}
    steps: int = 2000  # T'
    lr_fixed: float = 0.1  # lambda eta of Alg. 2, line 13
    alpha: float = 1.0  # Eq. 12, weight of labels that occur together
    beta: float = 1.0  # Eq. 12, weight of labels that do not
    nu: float = 1.0  # Eq. 12, margin

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_collecting()
        positive("method", steps=self.steps, lr_fixed=self.lr_fixed, nu=self.nu)
        not_negative("method", alpha=self.alpha, beta=self.beta)

    def opening(self) -> tuple[Query, ...]:
        return (replace(self.collection(), aggregate=self.learn_embeddings),)

    def learn_embeddings(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Collect the labels, then learn W (Alg. 2, lines 10 to 15)."""
        server = self.assemble(server, updates, context)
        reg_fc = Fixed(Pairs.from_tree(server, PAIRS), self.alpha, self.beta, self.nu)
        w = server["w"].clone()
        W = context.net.layout.view(w, HEAD)
        done, before = 0, W.clone()
        while done < self.steps:
            last = W.clone()
            W.copy_(normalize(W - self.lr_fixed * gradient(W, reg_fc)))  # line 13
            done += 1
            if torch.equal(W, before):  # rounded, the descent ends in a cycle of two; an even number of steps is none
                done += (self.steps - done) // 2 * 2
            before = last
        return server | {"w": w}

    def figures(self, server: Tree) -> dict[str, float]:
        return self.privacy(server)
