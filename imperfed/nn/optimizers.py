"""Adam (Kingma and Ba, 2015), written out: importing `torch.optim` takes longer than many of the descents here."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

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
        self._take_in(g)
        first, second = 1 - B1**t, 1 - B2**t
        corrected = lr * self.m / first if rate_first else lr * (self.m / first)
        return corrected / ((self.v / second).sqrt() + EPS)

    def move_by_rate(self, g: Tensor, lr: float, t: int) -> Tensor:
        """Return the step with both corrections in the rate (end of section 2): fewer operations, a larger epsilon."""
        self._take_in(g)
        rate: float = lr * (1 - B2**t) ** 0.5 / (1 - B1**t)
        return rate * self.m / (self.v.sqrt() + EPS)

    def _take_in(self, g: Tensor) -> None:
        self.m.lerp_(g, 1 - B1)
        self.v.lerp_(g.square(), 1 - B2)
