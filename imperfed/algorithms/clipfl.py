"""ClipFL (Morafah, Chang, Chen, Lin, "Federated learning client pruning for noisy labels", 2024).

Source: the three phases and the score are from the abstract; the authors' repository held no code. What the score
counts, how many sites are flagged and pruned, the length of the first phase and that flagged sites are left out of its
merges are unverified choices made here.

    symbol     where it lives                                        does it travel
    theta      server["w"]                                           down and up
    a_k        accuracy of theta_k on the server's labelled rows     never
    NCS_k      server["score"], rounds in which site k was flagged   never
    J          scoring, rounds of the first phase                    never
    rho        noisy, the share of sites taken for noisy             never

    rounds 0 .. J - 1:  flag the ceil(rho m) of m answers with the lowest a_k; NCS_k <- NCS_k + 1; merge the others
    then:               prune the floor(rho K) sites with the highest NCS_k per round seen; merge the others

Departs from the paper in: see the source. A site that never answered in the first phase has score 0 and stays; pruned
sites still train, and their answers are not used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext
from imperfed.core.errors import fraction, positive
from imperfed.core.exchange import Updates


@dataclass(frozen=True)
class ClipFL(Algorithm):
    """For noisy labels: score sites by their models' accuracy on clean rows at the server, then leave the worst out."""

    name: ClassVar[str] = "clipfl"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"noisy": (0.3, 0.1, 0.5)}
    scoring: int = 10  # J, the rounds in which sites are scored; the paper's is a tenth of all
    noisy: float = 0.3  # rho, the share of sites that is flagged in a round, and pruned in the end
    merge_flagged: bool = False  # whether flagged answers are merged while sites are scored

    def __post_init__(self) -> None:
        positive("method", scoring=self.scoring)
        fraction("method", noisy=self.noisy)

    @property
    def needs_server_rows(self) -> bool:
        return True

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {"score": torch.zeros(sites), "seen": torch.zeros(sites), "t": torch.zeros(())}

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        if server["t"] < self.scoring:
            bad = flagged(self.accuracies(updates, context), self.noisy, updates.index)
            count = {"score": bad.to(server["score"]), "seen": torch.ones_like(updates.n)}
            server = server | {name: server[name].index_add(0, updates.index, t) for name, t in count.items()}
            bad = bad & (not self.merge_flagged)
        else:
            bad = pruned(server["score"], server["seen"], self.noisy)[updates.index]
        good = ~bad if not bad.all() else torch.ones_like(bad)  # only pruned sites on duty: better than none
        p = updates.n * good
        return server | updates.average(p / p.sum()) | {"t": server["t"] + 1}

    @torch.no_grad()
    def accuracies(self, updates: Updates, context: ServerContext) -> Tensor:
        """Return a_k of every answer; all 0 where the server has no labelled rows."""
        trusted = context.trusted
        if trusted is None:
            context.notes.append("clipfl: the server holds no labelled rows, so sites are flagged by number")
            return torch.zeros_like(updates.n)
        models = zip(updates["w"], updates["buffers"], strict=True)
        logits = [context.net.at(w, buffers, trusted.x) for w, buffers in models]
        return updates.n.new_tensor([trusted.labels.validity(z).score for z in logits])


def flagged(accuracy: Tensor, share: float, site: Tensor) -> Tensor:
    """Return which answers are flagged: the ceil(rho m) least accurate, ties to the lower site."""
    by_site = site.argsort()
    order = by_site[accuracy[by_site].argsort(stable=True)]
    worst = order[: math.ceil(share * len(order) - 1e-9)]
    return torch.zeros_like(accuracy, dtype=torch.bool).index_fill(0, worst, True)


def pruned(score: Tensor, seen: Tensor, share: float) -> Tensor:
    """Return which sites are pruned: the floor(rho K) with the highest score per round seen, ties to the lower site."""
    order = (score / seen.clamp(min=1)).argsort(descending=True, stable=True)
    return torch.zeros_like(score, dtype=torch.bool).index_fill(0, order[: int(share * len(score) + 1e-9)], True)
