"""The weighted sum of the sites' mean gradients, by one pass over all rows instead of one pass per site."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from imperfed.core.batch import Batch, Tree
from imperfed.core.federation import Federation
from imperfed.core.labels import Labels
from imperfed.core.network import Net, Network
from imperfed.core.objective import Objective
from imperfed.engine.local_training import SiteData
from imperfed.engine.site import RunSpec

PART = 4096
"""The number of distinct examples per forward pass."""


@dataclass(frozen=True)
class EachExampleOnce:
    """A network that computes each distinct example once and gives the result to every row that holds it."""

    net: Net
    examples: Tensor
    index: Tensor
    """The example of each row of the batch."""

    @property
    def module(self) -> Network:
        """The network's module."""
        return self.net.module

    def __call__(self, x: Tensor) -> Tensor:
        return self.net(self.examples).index_select(0, self.index)

    def features(self, x: Tensor) -> Tensor:
        """Return the representation of every row."""
        return self.net.features(self.examples).index_select(0, self.index)


@dataclass(frozen=True)
class RowChunk:
    """The rows of at most `PART` distinct examples; rows of the same example are adjacent."""

    rows: Tensor
    owner: Tensor
    """The site that holds each row, as its position among the sites on duty."""
    examples: Tensor
    index: Tensor
    """The position of each row's example in `examples`."""
    site_stats: Tree
    """What the objective knows about all labels of each row's site."""


@dataclass(frozen=True)
class Route:
    """The order of a pass over all rows of some sites; it stays the same while the same sites are on duty."""

    sites: tuple[int, ...]
    sizes: Tensor
    parts: tuple[RowChunk, ...]

    @classmethod
    def of(cls, fed: Federation, objective: Objective, sites: Sequence[int]) -> Route:
        """Plan a pass on the device of the inputs, so that it needs nothing from the host."""
        device = fed.x.device
        sizes = torch.tensor([fed.starts[k + 1] - fed.starts[k] for k in sites], device=device)
        rows = torch.cat([torch.arange(fed.starts[k], fed.starts[k + 1], device=device) for k in sites])
        owner = torch.arange(len(sites), device=device).repeat_interleave(sizes)
        example = rows if fed.at is None else fed.at[rows]
        order = example.argsort(stable=True)  # rows of one example come together
        rows, owner, example = rows[order], owner[order], example[order]
        distinct, index = example.unique_consecutive(return_inverse=True)
        ends = torch.arange(0, len(distinct) + PART, PART, device=device)
        stats, parts = _site_stats(fed, objective, sites), []
        for number, (a, b) in enumerate(pairwise(torch.searchsorted(index, ends).tolist())):
            examples = distinct[number * PART : (number + 1) * PART]
            site_stats = {name: t[owner[a:b]] for name, t in stats.items()}
            parts.append(RowChunk(rows[a:b], owner[a:b], examples, index[a:b] - number * PART, site_stats))
        return cls(tuple(sites), sizes, tuple(parts))

    @classmethod
    def of_one(cls, data: SiteData) -> Route:
        """Plan a pass over the rows of a single site."""
        n = len(data.x)
        parts = []
        for start in range(0, n, PART):
            rows = torch.arange(start, min(start + PART, n))
            owner = torch.zeros_like(rows)
            site_stats = {name: t.expand(len(rows), *t.shape) for name, t in data.site_stats.items()}
            parts.append(RowChunk(rows, owner, rows, torch.arange(len(rows)), site_stats))
        return cls((0,), torch.tensor([n]), tuple(parts))


def weighted_gradient(
    spec: RunSpec, x: Tensor, labels: Labels, net: Net, row_memory: Tree, route: Route, p: Tensor
) -> tuple[Tensor, Tensor]:
    """Return sum_k p_k grad f_k at the network's present weights, f_k the mean loss of site k; and every f_k."""
    share = p.to(route.sizes.device) / route.sizes
    total, losses = net.w.new_zeros(spec.layout.shared), net.w.new_zeros(len(route.sizes))
    net.train(True)
    for part in route.parts:
        once = EachExampleOnce(net, x.index_select(0, part.examples), part.index)
        memory = {name: t[part.rows] for name, t in row_memory.items()}
        real = net.w.new_ones(len(part.rows))
        batch = Batch.of(x[:0], labels.take(part.rows), real, memory, {}, part.site_stats)
        values, _ = spec.objective.loss(once, batch)
        total += net.backward(values @ share[part.owner])[: len(total)]
        losses.index_add_(0, part.owner, values.detach())
    net.train(False)
    return total, losses / route.sizes


def _site_stats(fed: Federation, objective: Objective, sites: Sequence[int]) -> Tree:
    """Return what the objective knows about all labels of each site, one row per site."""
    if not objective.has_site_stats:  # true of most objectives, and there may be many sites
        return {}
    stats = [objective.site_stats(fed.labels.between(fed.starts[k], fed.starts[k + 1])) for k in sites]
    return {name: torch.stack([one[name] for one in stats]) for name in stats[0]}
