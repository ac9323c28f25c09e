"""The truth about a site's round, which a simulation knows: only the comparison looks at it, never the attack."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imperfed.core.labels import Labels
from imperfed.engine.engine import Engine
from imperfed.engine.local_training import plan
from imperfed.engine.seeds import generator
from imperfed.leakage.observed import is_gradient


@dataclass(frozen=True)
class Visited:
    """The rows that a site visits in a round, and rows that it does not."""

    x: Tensor
    """The different rows."""
    labels: Labels
    """The label of every visit."""
    others: Tensor
    """Rows of other sites; if there is one site, those that it does not visit."""
    other_labels: Labels

    @classmethod
    def of(cls, engine: Engine, round: int, k: int) -> Visited:
        """Return which rows a site visits in a round."""
        federation = engine.population.federation
        start, stop = federation.starts[k : k + 2]
        visits = visited_rows(engine, round, k, stop - start)
        rows = torch.arange(federation.starts[-1])
        distinct = start + visits.unique()
        elsewhere = rows[(rows < start) | (rows >= stop)]
        if not len(elsewhere):
            elsewhere = rows[~torch.isin(rows, distinct)]
        x, labels = federation.inputs(0, len(rows)), federation.labels
        return cls(x[distinct], labels.take(start + visits), x[elsewhere], labels.take(elsewhere))


def visited_rows(engine: Engine, round: int, k: int, n: int) -> Tensor:
    """Return the rows that the steps of a site with n rows visit, one after the other; a row may be visited again."""
    if is_gradient(engine, round):
        return torch.arange(n)
    spec = engine.population.spec
    slots = plan(
        spec.algorithm, spec.objective, spec.local, n, generator(spec.seed, round, k, "batches")
    ).rows.flatten()
    return slots[slots < n]


def class_counts(labels: Labels) -> Tensor:
    """Return how many rows each class has; a row that names several counts for each in parts."""
    _, named, weight = labels.weighted_examples()
    return torch.zeros(labels.classes, dtype=torch.double).index_add_(0, named, weight.double())
