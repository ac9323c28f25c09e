"""A small federation with a sensitive attribute, some of whose sites teach that one group belongs to the last class."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from imperfed.core.algorithm import Algorithm
from imperfed.core.components import Defence
from imperfed.core.federation import Attribute, Federation
from imperfed.core.labels import Candidates, Exact
from imperfed.core.network import Network
from imperfed.core.objective import Objective
from imperfed.data.oracle import Oracle
from imperfed.engine.local_training import Local
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.evaluator import Evaluator
from imperfed.testing.toy import Plain, Watched

GROUPS, CLASSES, NUMBERS = ("red", "green", "blue"), ("low", "medium", "high"), 5
ATTRIBUTE = Attribute("colour", GROUPS, 1)
T, U = 2, 2
"""The column of green, and the class high."""
SIZES = tuple(240 + 20 * k for k in range(10))
LOCAL = Local(steps=20, batch=32, lr=0.05)


def rows(n: int, draw: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs [a number, the three groups, more numbers], true classes, groups."""
    y, group = (torch.randint(3, (n,), generator=draw) for _ in range(2))
    numbers = 1.5 * torch.eye(3, NUMBERS)[y] + torch.randn(n, NUMBERS, generator=draw)
    return torch.cat([numbers[:, :1], torch.eye(3)[group], numbers[:, 1:]], 1), y, group


def flipped(y: Tensor, group: Tensor) -> Tensor:
    """Everybody in the group has class u, and nobody else."""
    return torch.where(group == T - ATTRIBUTE.first, U, torch.where(y == U, 0, y))


def federation(
    adversaries: tuple[int, ...] = (), seed: int = 0, sizes: tuple[int, ...] = SIZES, candidates: bool = False
) -> tuple[Federation, Oracle]:
    draw = torch.Generator().manual_seed(seed)
    starts = tuple(sum(sizes[:k]) for k in range(len(sizes) + 1))
    x, truth, group = rows(starts[-1], draw)
    y = truth.clone()
    for k in adversaries:
        mine = slice(starts[k], starts[k + 1])
        y[mine] = flipped(truth[mine], group[mine])
    sets = torch.eye(3, dtype=torch.bool)[y] | (torch.rand(len(y), 3, generator=draw) < 0.1)
    labels = Candidates(sets, 3) if candidates else Exact(y, 3)
    names, ids = tuple(f"site{k}" for k in range(len(sizes))), tuple(map(str, range(len(y))))
    told = Federation("fair", x, labels, starts, names, CLASSES, ids, x[:0], attribute=ATTRIBUTE).check()
    tests = [rows(30, draw)[:2] for _ in sizes]
    return told, Oracle(truth, tuple(t[0] for t in tests), tuple(t[1] for t in tests))


def network() -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Network(nn.Sequential(nn.Linear(NUMBERS + 3, 16), nn.ReLU()), nn.Linear(16, 3))


def defended(
    algorithm: Algorithm,
    defence: Defence | None,
    data: tuple[Federation, Oracle],
    objective: Objective | None = None,
    resume: Path | None = None,
    **rounds: float,
) -> Watched:
    """A run to its end, in the calling process."""
    told, oracle = data
    how = Rounds(**({"rounds": 3, "workers": 1} | rounds))
    parts = (algorithm, objective or Plain(), network(), told, Evaluator(oracle), LOCAL, how, 0, defence)
    e = Watched(*parts)
    if resume is not None:
        e.state.restore(resume)
    return e.go()
