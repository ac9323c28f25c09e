"""Which rows every site visits in each local step of a round, for a program that trains all sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from imperfed.engine.local_training import Plan, filled_slots


@dataclass(frozen=True)
class Assignment:
    """A site's work in one round, its rows numbered among those of all sites."""

    plan: Plan
    index: Tensor
    """[steps, B]; a slot that pads a batch holds the site's first row."""
    real: Tensor
    """0 on padding slots, 1 on others."""
    share: Tensor
    """1 / (number of real rows) on real rows, 0 on padding."""

    @classmethod
    def of(cls, plan: Plan, n: int, first: int) -> Assignment:
        """Return the assignment for a plan of n rows, the first of which has the number `first`."""
        real, share = shares(n, *plan.rows.shape)
        return cls(plan, torch.where(plan.rows < n, plan.rows + first, first), real, share)

    @property
    def steps(self) -> int:
        """The number of local steps."""
        return len(self.index)


@lru_cache(maxsize=4096)
def shares(n: int, steps: int, size: int) -> tuple[Tensor, Tensor]:
    """Return 1 on real slots of a plan for n rows and 0 on padding, and the same divided by a batch's real rows."""
    cuts = -(-n // size)
    one_pass = torch.zeros(cuts * size)
    one_pass[filled_slots(n, size)] = 1.0
    real = one_pass.view(cuts, size).repeat(-(-steps // cuts), 1)[:steps]
    return real, real / real.sum(1, keepdim=True)


class BatchSchedule:
    """Which rows every site visits in every step: the current block of a round, at fixed addresses."""

    def __init__(self, block: int, like: Sequence[Assignment], device: torch.device, keyed: bool = False) -> None:
        first, M = like[0], len(like)
        shape = (block, M, first.index.shape[1])
        self.index = torch.zeros(shape, dtype=torch.int64, device=device)
        self.real, self.share = (torch.zeros(shape, device=device) for _ in range(2))
        self.active = torch.ones(block, M, dtype=torch.bool, device=device)
        """Whether a site makes this step; not so once it has made all of its steps."""
        self.draws = {
            name: torch.zeros(block, M, *t.shape[1:], dtype=t.dtype, device=device)
            for name, t in first.plan.draws.items()
        }
        self.keyed = keyed
        """Whether some layer needs the key of every step, from which dropout masks follow."""
        self.keys = torch.zeros(block, M, 2 if keyed else 0, dtype=torch.int32, device=device)
        self.counts = torch.ones(M, device=device)
        """The number of steps of every site."""

    @property
    def block(self) -> list[Tensor]:
        """All tables of the current block."""
        keys = [self.keys] if self.keyed else []
        return [self.index, self.real, self.share, self.active, *keys, *self.draws.values()]

    def stage(self, work: Sequence[Assignment]) -> Staged:
        """Return a round's work on the device, cut into blocks; the current block stays as it is."""
        size, device = len(self.index), self.index.device
        steps = [one.steps for one in work]
        length = -(-max(steps) // size) * size
        parts = [[one.index for one in work], [one.real for one in work], [one.share for one in work]]
        parts.append([torch.ones(count, dtype=torch.bool) for count in steps])
        if self.keyed:
            parts.append([one.plan.keys(torch.device("cpu")) for one in work])
        parts += [[one.plan.draws[name] for one in work] for name in self.draws]
        tables = tuple(ahead(beside(part, length), device) for part in parts)
        return Staged(length // size, tables, ahead(torch.tensor(steps, dtype=torch.float32), device))

    def turn(self, staged: Staged, number: int) -> None:
        """Make the block of this number the current one."""
        size = len(self.index)
        for table, whole in zip(self.block, staged.tables, strict=True):
            table.copy_(whole[number * size : (number + 1) * size])
        self.counts.copy_(staged.counts)


@dataclass(frozen=True)
class Staged:
    """A round's work on the device, ready to be used block by block."""

    blocks: int
    tables: tuple[Tensor, ...]
    counts: Tensor


def beside(parts: Sequence[Tensor], length: int) -> Tensor:
    """Return the sites' parts [steps, ...] side by side, [length, M, ...]; 0 beyond a part's end."""
    if all(len(part) == length for part in parts):
        return torch.stack(list(parts), 1)
    whole = parts[0].new_zeros(length, len(parts), *parts[0].shape[1:])
    for m, part in enumerate(parts):
        whole[: len(part), m] = part
    return whole


def ahead(t: Tensor, device: torch.device) -> Tensor:
    """Return a copy on a device, for which the host does not wait."""
    return t.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else t.clone()
