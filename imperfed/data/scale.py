"""Standardisation of inputs with statistics that can be added up across sites without revealing a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from imperfed.core.batch import Tree

CONSTANT = 1e-12
"""Variance relative to the squared mean up to which a column is constant: sums of squares are no more precise."""


@dataclass(frozen=True)
class Moments:
    """What a site reports about its inputs: the number of values per feature, their sum and their sum of squares."""

    n: int
    total: Tensor
    squares: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Moments:
        """Return the sums of a table per column, and of images per channel over all pixels."""
        if x.ndim == 2:
            x = x.double()
            return cls(len(x), x.sum(0), x.square().sum(0))
        over, pixels = (0, *range(2, x.ndim)), x[:1, :1].numel()
        sums = [t.sum(over, keepdim=True, dtype=torch.float64)[0] for t in (x, x.square())]
        return cls(len(x) * pixels, *sums)


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of each feature over all training rows; empty for inputs that are not scaled."""

    mean: Tensor
    spread: Tensor

    @classmethod
    def none(cls) -> Scale:
        """Return the scale that leaves inputs as they are."""
        return cls(torch.empty(0), torch.empty(0))

    @classmethod
    def of(cls, x: Tensor, sites: Sequence[Tensor], images: bool = False) -> Scale:
        """Return the scale of the sites' training rows: of tables always, of images only if `images`."""
        return cls.merged([Moments.of(x[rows]) for rows in sites]) if x.ndim == 2 or images else cls.none()

    @classmethod
    def merged(cls, sites: Sequence[Moments]) -> Scale:
        """Return the scale from counts, sums and sums of squares, which are all that has to leave a site."""
        n = sum(site.n for site in sites)
        mean = torch.stack([site.total for site in sites]).sum(0) / n
        variance = torch.stack([site.squares for site in sites]).sum(0) / n - mean.square()
        spread = torch.where(variance > CONSTANT * mean.square(), variance, 1.0).sqrt()
        return cls(mean, spread) if mean.ndim == 1 else cls(mean.float(), spread.float())  # to save memory

    @staticmethod
    def sums(x: Tensor, images: bool = False) -> Tree:
        """Return a site's moments as they are sent; empty for images that are not scaled."""
        if x.ndim != 2 and not images:
            return {}
        moments = Moments.of(x)
        return {"count": torch.tensor(moments.n), "sum": moments.total, "square": moments.squares}

    @classmethod
    def of_sums(cls, parts: Sequence[Tree]) -> Scale:
        """Return the scale from the moments that all sites sent."""
        if not parts[0]:
            return cls.none()
        return cls.merged([Moments(int(part["count"]), part["sum"], part["square"]) for part in parts])

    def __call__(self, x: Tensor) -> Tensor:
        return ((x - self.mean) / self.spread).float() if len(self.mean) else x
