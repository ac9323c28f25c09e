"""How near reconstructions are to the rows that a site visited, beside rows that it never saw.

The unit of distance is what the average row misses a row by: 0 is the row itself, 1 no better than the average row. A
reconstruction of an image looks like an image in any case, so the same comparison is made with rows of other sites.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

RECOVERED = 0.1
"""The largest distance at which a row counts as recovered."""
EXACT = 1e-3
"""The largest distance at which it counts as exact, up to the rounding of the weights."""


@dataclass(frozen=True)
class Matched:
    """Each visited row with the reconstruction assigned to it; rows without one are left out."""

    row: Tensor
    """Numbers of rows."""
    made: Tensor
    """Numbers of reconstructions."""
    distance: Tensor
    closer: Tensor
    """Whether the reconstruction is at least as near to its row as to every row of the others."""

    @property
    def recovered(self) -> Tensor:
        """Whether the row is recovered."""
        return (self.distance <= RECOVERED) & self.closer

    @property
    def exact(self) -> Tensor:
        """Whether the reconstruction is the row itself."""
        return self.recovered & (self.distance <= EXACT)

    @property
    def share_closer(self) -> float:
        """The share of reconstructions that are nearer to their row than to any row of the others."""
        return float(self.closer.double().mean()) if len(self.closer) else 0.0


def match(made: Tensor, rows: Tensor, others: Tensor) -> Matched:
    """Assign reconstructions to rows so that the distances together are smallest; all are matrices of one width."""
    from scipy.optimize import linear_sum_assignment

    made, rows, others = made.double(), rows.double(), others.double()
    average = (others if len(others) else rows).mean(0)
    apart = torch.cdist(made, rows)
    distance = apart / (rows - average).norm(dim=1).clamp(min=1e-12)
    i, j = (torch.from_numpy(index) for index in linear_sum_assignment(distance.cpu().numpy()))
    nearest = torch.cdist(made[i], others).min(1).values if len(others) else torch.full((len(i),), torch.inf)
    return Matched(j, i, distance[i, j], apart[i, j] <= nearest)


def by_chance(made: Tensor, rows: Tensor, others: Tensor) -> Matched:
    """Match the same reconstructions with as many rows that the site never visited, as if it had."""
    draw = torch.randperm(len(others), generator=torch.Generator().manual_seed(0))
    taken, rest = draw[: len(rows)], draw[len(rows) :]
    return match(made, others[taken], torch.cat([rows, others[rest]]))


def recovered_by_chance(chance: Matched, visited: int, elsewhere: int) -> int:
    """Return how many rows chance recovers among as many as were visited, also where there are fewer elsewhere."""
    tried = min(visited, elsewhere)
    return round(int(chance.recovered.sum()) * visited / tried) if tried else 0
