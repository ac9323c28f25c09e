"""Standardisation of inputs with statistics that can be added up across sites without revealing a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.lazy import LazyRows
from imperfed.data.fill import ColumnFill, learn_fills
from imperfed.data.moments import Moments

CONSTANT = 1e-12
"""Variance relative to the squared mean up to which a column is constant: sums of squares are no more precise."""
NUMBERS = 1 << 22
"""The most numbers that are scaled at once: on the way they are doubles."""
FARTHEST = 20.0
"""The most standard deviations that a number counts in a table with numbers beyond reason."""
AT_ONCE = 1024
"""The number of sites whose sums are objects at the same time."""


def _nothing() -> Tensor:
    return torch.empty(0)


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of each feature over all training rows; empty for inputs that are not scaled."""

    mean: Tensor
    spread: Tensor
    fill: Tensor = field(default_factory=_nothing)
    """What fills a blank (NaN), by feature; empty if there are none."""
    limit: float = torch.inf
    """The largest magnitude of a scaled feature; larger ones are cut to it."""
    edges: Tensor = field(default_factory=_nothing)
    """The edges of the bins of each scaled feature, [features, bins + 1], for models that take them; else empty."""

    @classmethod
    def none(cls) -> Scale:
        """Return the scale that leaves inputs as they are."""
        return cls(torch.empty(0), torch.empty(0))

    @classmethod
    def of(cls, x: Tensor, sites: Sequence[Tensor], images: bool = False) -> Scale:
        """Return the scale of the sites' training rows: of tables always, of images only if `images`."""
        return cls.merged(Moments.of(x[rows]) for rows in sites) if x.ndim == 2 or images else cls.none()

    @classmethod
    def merged(cls, sites: Iterable[Moments]) -> Scale:
        """Return the scale from counts, sums and sums of squares, which are all that has to leave a site."""
        n, total, squares = _added_up(iter(sites))
        n = n.clamp(min=1)
        mean = total / n
        variance = squares / n - mean.square()
        spread = torch.where(variance > CONSTANT * mean.square(), variance, 1.0).sqrt()
        return cls(mean, spread) if mean.ndim == 1 else cls(mean.float(), spread.float())  # to save memory

    @classmethod
    def of_files(cls, sites: Sequence[Moments], fills: Sequence[ColumnFill], standardise: bool) -> Scale:
        """Return the scale of the user's own rows, with what fills blanks.

        If some sites hold numbers beyond reason, scaled inputs are limited, so that these outweigh nothing.
        """
        scale = cls.merged(sites) if standardise else cls.none()
        fill = learn_fills(fills, sites) if fills else _nothing()
        limited = standardise and any(bool(site.mistakes) for site in sites)
        return cls(scale.mean, scale.spread, fill, FARTHEST if limited else torch.inf)

    def tree(self) -> Tree:
        """Return the numbers as they are sent and saved; empty if inputs are left as they are."""
        tree = {"mean": self.mean, "spread": self.spread} if len(self.mean) else {}
        tree |= {"fill": self.fill} if len(self.fill) else {}
        tree |= {"edges": self.edges} if len(self.edges) else {}
        return tree | ({"limit": torch.tensor(self.limit)} if self.limit < torch.inf else {})

    @classmethod
    def of_tree(cls, tree: Tree) -> Scale:
        """Return the scale that was sent or saved."""
        mean, spread, fill, edges = (tree.get(name, _nothing()) for name in ("mean", "spread", "fill", "edges"))
        return cls(mean, spread, fill, float(tree["limit"]) if "limit" in tree else torch.inf, edges)

    def __call__(self, x: Tensor) -> Tensor:
        if isinstance(x, LazyRows):
            return x.then(self) if len(self.fill) or len(self.mean) else x
        if not (len(self.fill) or len(self.mean)):
            return x
        if x.numel() <= NUMBERS:
            return self.at_once(x)
        out = torch.empty_like(x, dtype=torch.float32)
        rows = max(1, NUMBERS // x.shape[1:].numel())
        for part, place in zip(x.split(rows), out.split(rows), strict=True):
            place.copy_(self.at_once(part))
        return out

    def at_once(self, x: Tensor) -> Tensor:
        """Return all rows scaled, without looking at how many there are, as an exported program has to."""
        if len(self.fill):
            x = torch.where(x.isnan(), self.fill, x)
        if not len(self.mean):
            return x
        scaled = (x - self.mean) / self.spread
        return (scaled.clamp(-self.limit, self.limit) if self.limit < torch.inf else scaled).float()


def _added_up(sites: Iterator[Moments]) -> tuple[Tensor, ...]:
    """Return counts, sums and sums of squares over all sites, of which there may be more than fit as objects."""
    parts = []
    while some := [(site.n, site.total, site.squares) for site in islice(sites, AT_ONCE)]:
        parts.append([torch.stack(of_sites) for of_sites in zip(*some, strict=True)])
    return tuple(torch.cat(part).sum(0) for part in zip(*parts, strict=True))
