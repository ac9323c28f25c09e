"""Bulyan (El Mhamdi, Guerraoui, Rouault, "The hidden vulnerability of distributed learning in Byzantium", ICML 2018).

Source: the definition is from memory, compared with a public library's reference page and with FedML's code, which uses
plain distances, n - f neighbours and one value fewer in the mean.

    symbol    where it lives                                  does it travel
    V_i       updates["w"]                                    up
    n         len(updates.who), sites that answered
    f         adversaries, declared
    Theta     n - 2f, how many answers are selected           never
    beta      Theta - 2f, how many values make up the mean    never

Sites are selected by their weights, one after the other; the mean near the median is then taken of every named answer
of the selected, including normalisation buffers. The sizes that sites claim are not used.

Departs from the paper in: where fewer than one neighbour is left to count, the nearest one counts; the paper does not
say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.exchange import Updates
from imperfed.defences.krum import nearest_sums, squared_distances
from imperfed.defences.median import median
from imperfed.defences.robust import Everywhere


@dataclass(frozen=True)
class Bulyan(Everywhere):
    """Select answers by repeated Krum, then the mean of the values nearest to their median, by coordinate."""

    name: ClassVar[str] = "bulyan"
    adversaries: int = 1  # f, the largest number of adversaries

    def needs(self) -> int:
        return 4 * self.adversaries + 3

    def rule(self, updates: Updates) -> Updates:
        selected = select(updates["w"], self.adversaries)
        return super().rule(updates.only(torch.tensor(selected, device=updates.n.device).sort().values))

    def mix(self, V: Tensor) -> Tensor:
        return mean_near_median(V, len(V) - 2 * self.adversaries)


def select(V: Tensor, f: int) -> list[int]:
    """Return the Theta answers that Krum picks one after the other, each from those that are left, in that order."""
    D, rest, picked = squared_distances(V), list(range(len(V))), list[int]()
    for _ in range(len(V) - 2 * f):
        at = torch.tensor(rest, device=D.device)
        s = nearest_sums(D[at][:, at], max(1, len(rest) - f - 2))
        picked.append(rest.pop(int(s.argsort(stable=True)[0])))
    return picked


def mean_near_median(V: Tensor, beta: int) -> Tensor:
    """Return the mean of the beta values of each coordinate nearest to its median; of two as near, the smaller one."""
    ordered = V.double().sort(0).values
    near = (ordered - median(ordered)).abs().argsort(dim=0, stable=True)[:beta]
    return ordered.gather(0, near).mean(0).to(V.dtype)
