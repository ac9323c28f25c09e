"""Sites with two tasks and classes that lie in directions of their own, and clean rows at the server."""

from __future__ import annotations

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.labels import Exact
from imperfed.repairs.protocol import View

CLASSES = ("a", "b", "c", "d")
D = 12
TASK_OF = (0, 0, 1, 1)


def rows(y: Tensor, draw: torch.Generator, spread: float = 0.25) -> Tensor:
    """Features around a direction of each class, two of which lie near each other in either task."""
    centres = torch.zeros(4, D)
    for c in range(4):
        centres[c, 3 * c : 3 * c + 3] = 1.0
    centres[1, :3] = centres[3, 6:9] = 0.4
    return centres[y] + spread * torch.randn(len(y), D, generator=draw)


def site(
    index: int, counts: list[int], draw: torch.Generator, given: dict[int, int] | None = None
) -> tuple[View, Tensor]:
    """A site with so many rows of each class, and its true classes; `given` says which classes were labelled wrong."""
    y = torch.arange(4).repeat_interleave(torch.tensor(counts))
    told = y.clone()
    for true, wrong in (given or {}).items():
        told[y == true] = wrong
    return View(index, rows(y, draw), Exact(told, 4)), y


def clean(draw: torch.Generator, each: int = 30) -> Tree:
    """The server's memory: `each` clean rows of every class."""
    y = torch.arange(4).repeat(each)
    return {"x": rows(y, draw), "y": y}
