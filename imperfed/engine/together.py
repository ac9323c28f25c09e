"""One pass over all sites' rows that stands for a pass a site: the weighted sum of the sites' mean gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from imperfed.core import Batch, Tree
from imperfed.engine.site import Job
from imperfed.network import Net

PART = 4096
"""Examples taken at once."""


@dataclass(frozen=True)
class Once:
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


def weighted_gradient(job: Job, net: Net, remembered: Tree, sites: Sequence[int], p: Tensor) -> tuple[Tensor, Tensor]:
    """sum_k p_k grad f_k at the network's present weights, f_k the mean loss of site k; and every site's mean loss."""
    fed = job.federation
    sizes = torch.tensor([fed.starts[k + 1] - fed.starts[k] for k in sites])
    rows = torch.cat([torch.arange(fed.starts[k], fed.starts[k + 1]) for k in sites])
    owner = torch.arange(len(sites)).repeat_interleave(sizes)
    example = rows if fed.at is None else fed.at[rows]
    order = example.argsort(stable=True)  # rows of one example come together
    rows, owner, example = rows[order], owner[order], example[order]
    distinct, index = example.unique_consecutive(return_inverse=True)
    cuts = torch.searchsorted(index, torch.arange(0, len(distinct) + PART, PART)).tolist()
    weight = (p / sizes)[owner]
    total, losses, surveys = torch.zeros(job.layout.shared), torch.zeros(len(sites)), _surveys(job, sites)
    net.train(True)
    for number, (a, b) in enumerate(pairwise(cuts)):
        at = rows[a:b]
        examples = fed.x[distinct[number * PART : (number + 1) * PART]]
        once = Once(net, examples, index[a:b] - number * PART)
        memory = {name: t[at] for name, t in remembered.items()}
        survey = {name: t[owner[a:b]] for name, t in surveys.items()}
        batch = Batch.of(fed.x[:0], fed.labels.take(at), torch.ones(b - a), memory, {}, survey)
        values, _ = job.objective.loss(once, batch)
        total += net.backward(values @ weight[a:b])[: len(total)]
        losses.index_add_(0, owner[a:b], values.detach())
    net.train(False)
    return total, losses / sizes


def _surveys(job: Job, sites: Sequence[int]) -> Tree:
    """What the objective knows of all labels of each site, a row a site."""
    fed = job.federation
    if not job.objective.survey(fed.labels):  # most know nothing, and sites may be many
        return {}
    found = [job.objective.survey(fed.labels.between(fed.starts[k], fed.starts[k + 1])) for k in sites]
    return {name: torch.stack([one[name] for one in found]) for name in found[0]}
