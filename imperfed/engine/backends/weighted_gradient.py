"""One pass over all sites' rows that stands for a pass a site: the weighted sum of the sites' mean gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from imperfed.core.batch import Batch, Tree
from imperfed.core.network import Net
from imperfed.engine.site import RunSpec

PART = 4096
"""Examples taken at once."""


@dataclass(frozen=True)
class EachExampleOnce:
    """A network that computes each distinct example once and answers for every row it appears in."""

    net: Net
    examples: Tensor
    index: Tensor
    """Which example each row of the batch is."""

    @property
    def module(self) -> Any:
        """The network's own modules."""
        return self.net.module

    def __call__(self, x: Tensor) -> Tensor:
        return self.net(self.examples).index_select(0, self.index)

    def features(self, x: Tensor) -> Tensor:
        """The representation of every row."""
        return self.net.features(self.examples).index_select(0, self.index)


@dataclass(frozen=True)
class RowChunk:
    """The rows of at most `PART` distinct examples, rows of one example beside each other."""

    rows: Tensor
    owner: Tensor
    """The place among the sites on duty of the site that holds each row."""
    examples: Tensor
    index: Tensor
    """Which of the examples each row is."""
    survey: Tree
    """What the objective knows of all labels of each row's site."""


@dataclass(frozen=True)
class Route:
    """The way through all rows of some sites: it stays the same as long as the same sites are on duty."""

    sites: tuple[int, ...]
    sizes: Tensor
    parts: tuple[RowChunk, ...]

    @classmethod
    def of(cls, spec: RunSpec, sites: Sequence[int]) -> Route:
        """On the device of the inputs, so that following it asks nothing of the host."""
        fed = spec.federation
        device = fed.x.device
        sizes = torch.tensor([fed.starts[k + 1] - fed.starts[k] for k in sites], device=device)
        rows = torch.cat([torch.arange(fed.starts[k], fed.starts[k + 1], device=device) for k in sites])
        owner = torch.arange(len(sites), device=device).repeat_interleave(sizes)
        example = rows if fed.at is None else fed.at[rows]
        order = example.argsort(stable=True)  # rows of one example come together
        rows, owner, example = rows[order], owner[order], example[order]
        distinct, index = example.unique_consecutive(return_inverse=True)
        ends = torch.arange(0, len(distinct) + PART, PART, device=device)
        surveys, parts = _surveys(spec, sites), []
        for number, (a, b) in enumerate(pairwise(torch.searchsorted(index, ends).tolist())):
            mine = distinct[number * PART : (number + 1) * PART]
            survey = {name: t[owner[a:b]] for name, t in surveys.items()}
            parts.append(RowChunk(rows[a:b], owner[a:b], mine, index[a:b] - number * PART, survey))
        return cls(tuple(sites), sizes, tuple(parts))


def weighted_gradient(spec: RunSpec, net: Net, remembered: Tree, route: Route, p: Tensor) -> tuple[Tensor, Tensor]:
    """sum_k p_k grad f_k at the network's present weights, f_k the mean loss of site k; and every site's mean loss."""
    fed = spec.federation
    share = p.to(route.sizes.device) / route.sizes
    total, losses = net.w.new_zeros(spec.layout.shared), net.w.new_zeros(len(route.sizes))
    net.train(True)
    for part in route.parts:
        once = EachExampleOnce(net, fed.x[part.examples], part.index)
        memory = {name: t[part.rows] for name, t in remembered.items()}
        real = net.w.new_ones(len(part.rows))
        batch = Batch.of(fed.x[:0], fed.labels.take(part.rows), real, memory, {}, part.survey)
        values, _ = spec.objective.loss(once, batch)
        total += net.backward(values @ share[part.owner])[: len(total)]
        losses.index_add_(0, part.owner, values.detach())
    net.train(False)
    return total, losses / route.sizes


def _surveys(spec: RunSpec, sites: Sequence[int]) -> Tree:
    """What the objective knows of all labels of each site, a row a site."""
    fed = spec.federation
    if not spec.objective.site_stats(fed.labels):  # most know nothing, and sites may be many
        return {}
    found = [spec.objective.site_stats(fed.labels.between(fed.starts[k], fed.starts[k + 1])) for k in sites]
    return {name: torch.stack([one[name] for one in found]) for name in found[0]}
