"""A tiny federation for each kind of labels, in memory."""

from __future__ import annotations

import torch

from imperfed.core.federation import Federation
from imperfed.core.labels import Annotated, Candidates, Exact, Labels, Positives


def federation(kind: str, sites: int = 2, rows: int = 24) -> Federation:
    """Return rows around three corners, with labels of this kind."""
    draw = torch.Generator().manual_seed(0)
    n = sites * rows
    y = torch.randint(3, (n,), generator=draw)
    x = 2 * torch.eye(3)[y] + 0.4 * torch.randn(n, 3, generator=draw)
    hot = torch.eye(3, dtype=torch.bool)[y]
    extra = torch.rand(n, 3, generator=draw) < 0.2
    labels: dict[str, Labels] = {
        "exact": Exact(y, 3),
        "candidates": Candidates(hot | extra, 3),
        "annotated": Annotated(torch.where(extra, -1, hot.to(torch.int8)).to(torch.int8), 3),
        "positives": Positives(hot, 3),
    }
    return Federation(
        f"toy {kind}",
        x,
        labels[kind],
        tuple(range(0, n + 1, rows)),
        tuple(f"s{k}" for k in range(sites)),
        ("a", "b", "c"),
        tuple(map(str, range(n))),
        torch.empty(0, 3),
    )
