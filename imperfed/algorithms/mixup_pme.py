"""MixUp-PME (reconstruction), after Dong, Wang, Voiculescu, "Revisiting vicinal risk minimization for partially
supervised multi-label classification under data scarcity", CVPR workshops 2022.

Source: title and abstract only; the name is from a public literature review, no code was found. That "PME" is the
principle of maximum entropy, by which an unknown label counts as 1/2, is from memory, unverified, and so are the mask
and all defaults: call its figures "MixUp-PME (reconstruction)".

    symbol      where it lives                                                     does it travel
    lambda      draws["lam"], one per batch, from Beta(a, a)                       never
    i, j        a row of the batch and its partner in a random order of its rows   never
    m           1 in annotated cells: values >= 0                                  never
    f(y)        y where annotated; otherwise 1/2                                   never

    x~ = lambda x_i + (1 - lambda) x_j,  y~ = lambda f(y_i) + (1 - lambda) f(y_j)
    L = sum of BCE(x~, y~) over the cells with m_i or m_j, divided by their number
    counted=split: sum of lambda m_i BCE(x~, y_i) + (1 - lambda) m_j BCE(x~, y_j), divided by that of the weights

FedPSL's tables have it on all rows in one place, `pooled+mixup-pme`; at one site, whose rows are annotated for the same
classes, the fill plays no part and this is MixUp over the annotated classes.

Departs from the paper in: what could not be read, see above. Positives weigh N_neg / N_pos as in `iml`; in a mixture
that weight acts on the part y~.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from imperfed.algorithms.iml import IML
from imperfed.core.batch import Batch, Tree
from imperfed.core.errors import UsageError, positive
from imperfed.nn.losses import mean_over_cells
from imperfed.nn.pairs import draw_pairs, draw_shares, partners


@dataclass(frozen=True)
class MixUpPME(IML):
    """Mixtures of two rows; in the mixture of their labels, a label that is not annotated counts as one half."""

    name: ClassVar[str] = "mixup-pme"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"a": (1.0, 0.2, 0.4)}
    changes_inputs: ClassVar[bool] = True
    a: float = 1.0  # of Beta(a, a), from which lambda is drawn
    counted: Literal["either", "both", "all", "split"] = "either"  # cells annotated in x_i or x_j, in both; all
    fill: Literal["half", "pseudo"] = "half"  # f of a missing label; "pseudo": as the model predicts, where it is sure
    tau: float = 0.95  # fill=pseudo: how sure the model must be

    def __post_init__(self) -> None:
        positive("objective", a=self.a)
        if not 0.5 < self.tau <= 1:
            raise UsageError(f"setting objective.tau must lie above 0.5 and at most at 1; got {self.tau:g}")

    def draws(self, steps: int, batch: int, generator: torch.Generator) -> Tree:
        return {"lam": draw_shares(self.a, steps, generator), **draw_pairs(steps, batch, generator)}

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        if not batch.draws:
            return super().loss(net, batch)
        lam, j = batch.draws["lam"], partners(batch)
        known, f = batch.labels.values >= 0, self.filled(net, batch)
        x = lam * batch.x + (1 - lam) * batch.x[j]  # x~
        if self.counted == "split":
            y, weights = split(lam, f, known, j)
        else:
            y = lam * f + (1 - lam) * f[j]  # y~
            weights = {"either": known | known[j], "both": known & known[j], "all": known | ~known}[self.counted]
        return mean_over_cells(self.cells(net(x), y, batch), weights, batch.real), None

    def filled(self, net: Callable[[Tensor], Tensor], batch: Batch) -> Tensor:
        """Return f(y)."""
        y = batch.labels.values.to(batch.x.dtype)
        half = torch.full_like(y, 0.5)  # not from a number of the host: a captured step must not wait for it
        if self.fill == "pseudo":
            with torch.no_grad():
                p = torch.sigmoid(net(batch.x))
            half = torch.where((p >= self.tau) | (p <= 1 - self.tau), p.round(), half)
        return torch.where(y >= 0, y, half)


def split(lam: Tensor, y: Tensor, known: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
    """Return targets and weights whose mean is sum(lam m_i BCE(y_i) + (1 - lam) m_j BCE(y_j)) / sum of the weights."""
    one, other = lam * known, (1 - lam) * known[j]
    weights = one + other  # BCE is linear in its target
    return (one * y + other * y[j]) / torch.where(weights > 0, weights, 1.0), weights
