"""RFA, the geometric median of the answers (Pillutla, Kakade, Harchaoui, "Robust aggregation for federated learning",
IEEE TSP 2022).

Source: the algorithm and its defaults were checked against the authors' code; the paper's text recommends three steps
and nu = 1e-6 (from memory).

    symbol     where it lives                                       does it travel
    V_k        updates["w"]                                         up
    alpha_k    1 / n, or n_k / sum n with weights=sizes             n_k is the site's claim
    v          v in `weiszfeld`                                     never
    w_k        the result of `weiszfeld`                            never

The smoothed Weiszfeld algorithm ends with weights w_k, with which the geometric median is sum_k w_k V_k; every other
named answer is averaged with the same weights, and every answer is replaced by the mean.

Departs from the paper in: sites count alike by default, since claiming many rows would be a way to more weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from imperfed.core.errors import not_negative, positive
from imperfed.core.exchange import Updates
from imperfed.defences.robust import Mixing


@dataclass(frozen=True)
class RFA(Mixing):
    """Geometric median of the sites' answers."""

    name: ClassVar[str] = "rfa"
    steps: int = 4  # T, the most steps of the Weiszfeld algorithm
    nu: float = 1e-5  # nu, the smallest distance by which a weight is divided
    tolerance: float = 1e-6  # ftol, the relative change of the objective at which it stops
    weights: Literal["uniform", "sizes"] = "uniform"  # alpha

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("defence", steps=self.steps, nu=self.nu)
        not_negative("defence", tolerance=self.tolerance)

    def rule(self, updates: Updates) -> Updates:
        alpha = updates.uniform() if self.weights == "uniform" else updates.by_size()
        w = weiszfeld(updates["w"], alpha, self.steps, self.nu, self.tolerance)
        return replace(updates, trees={name: mean(w, t).expand_as(t) for name, t in updates.trees.items()})


def weiszfeld(V: Tensor, alpha: Tensor, steps: int, nu: float, tolerance: float) -> Tensor:
    """Return the weights of the answers in their geometric median; [n], in double precision."""
    V, alpha = V.double(), alpha.double()
    w, before = alpha, torch.inf
    for _ in range(steps):
        far = torch.linalg.vector_norm(w @ V - V, dim=1)
        objective = float(alpha @ far)
        if abs(before - objective) <= tolerance * objective:
            break
        w = alpha / far.clamp(min=nu)  # w_k = alpha_k / max(nu, |v - V_k|)
        w, before = w / w.sum(), objective
    return w


def mean(w: Tensor, V: Tensor) -> Tensor:
    """Return sum_k w_k V_k in the shape and the type of the answers."""
    mixed: Tensor = torch.tensordot(w, V.double(), 1)
    return mixed.to(V.dtype)
