"""Adam (Kingma and Ba, 2015), written out: importing `torch.optim` takes longer than many of the descents here."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.context import LocalStep
from imperfed.core.rates import descend

B1, B2, EPS = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Adam:
    """The two moments of one tensor's gradients, updated in place by every step."""

    m: Tensor
    v: Tensor

    @classmethod
    def of(cls, w: Tensor) -> Adam:
        """Return zero moments for these weights."""
        return cls(torch.zeros_like(w), torch.zeros_like(w))

    def move(self, g: Tensor, lr: float | Tensor, t: int | Tensor, rate_first: bool = False) -> Tensor:
        """Return what step t (the first is 1) along g subtracts from the weights: algorithm 1 of the paper.

        `rate_first` changes only the rounding; over a long descent even that shows.
        """
        self.take_in(g)
        first, second = 1 - B1**t, 1 - B2**t
        corrected = lr * self.m / first if rate_first else lr * (self.m / first)
        return corrected / ((self.v / second).sqrt() + EPS)

    def move_by_rate(self, g: Tensor, lr: float, t: int) -> Tensor:
        """Return the step with both corrections in the rate (end of section 2): fewer operations, a larger epsilon."""
        self.take_in(g)
        rate: float = lr * (1 - B2**t) ** 0.5 / (1 - B1**t)
        return rate * self.m / (self.v.sqrt() + EPS)

    def take_in(self, g: Tensor) -> None:
        """Update both moments with a gradient."""
        self.m.lerp_(g, 1 - B1)
        self.v.lerp_(g.square(), 1 - B2)


@dataclass(frozen=True)
class AdamOptimizer:
    """The run's optimizer where it is Adam, or AdamW (Loshchilov and Hutter, 2019): of one site, or one row per site.

    The number of steps is a tensor, so that a captured step counts too.
    """

    decoupled: float = 0.0
    """AdamW's weight decay: w <- (1 - lr decay) w before the step. Adam's is part of the gradient."""

    def init(self, w: Tensor) -> Tree:
        """Return the state before the first step."""
        return {"m": torch.zeros_like(w), "v": torch.zeros_like(w), "t": w.new_zeros(w.shape[:-1])}

    def move(self, g: Tensor, step: LocalStep) -> None:
        """Make a step along g."""
        m, v, t = step.opt_state["m"], step.opt_state["v"], step.opt_state["t"].add_(1).unsqueeze(-1)
        Adam(m, v).take_in(g)
        # 1 - beta^t: computed as written, float32 would lose half of its digits where beta^t is near 1.
        first, second = (-torch.expm1(t * math.log(beta)) for beta in (B1, B2))
        if self.decoupled:
            step.w.mul_(1 - step.lr * self.decoupled)
        descend(step.w, (m / first).div_((v / second).sqrt_().add_(EPS)), step.lr, out=step.w)
