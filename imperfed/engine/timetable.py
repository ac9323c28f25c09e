"""Which rows every site visits in which local step of a round, for a program that trains them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from imperfed.descend import Plan


@dataclass(frozen=True)
class Assignment:
    """A site's work in one round, its rows counted among those of all sites."""

    plan: Plan
    index: Tensor
    """[steps, B]; a slot that pads a batch holds the site's first row."""
    real: Tensor
    """0 on slots that pad, 1 on others."""
    share: Tensor
    """1 / (real rows of the batch) on real rows, 0 on others."""

    @classmethod
    def of(cls, plan: Plan, n: int, first: int) -> Assignment:
        """From a plan for n rows, the first of which has this number."""
        real = plan.rows < n
        share = real / real.sum(1, keepdim=True)
        return cls(plan, torch.where(real, plan.rows, 0) + first, real.float(), share)

    @property
    def steps(self) -> int:
        """The number of local steps."""
        return len(self.index)


class Timetable:
    """Which rows every site visits in every step: a round's whole, and at fixed addresses the block now at work."""

    def __init__(self, block: int, like: Sequence[Assignment], device: torch.device) -> None:
        first, M = like[0], len(like)
        shape = (block, M, first.index.shape[1])
        self.index = torch.zeros(shape, dtype=torch.int64, device=device)
        self.real, self.share = (torch.zeros(shape, device=device) for _ in range(2))
        self.active = torch.ones(block, M, dtype=torch.bool, device=device)
        """Whether a site makes this step, or has made all of its steps."""
        self.draws = {
            name: torch.zeros(block, M, *t.shape[1:], dtype=t.dtype, device=device)
            for name, t in first.plan.draws.items()
        }
        self.whole: list[Tensor] = []

    @property
    def block(self) -> list[Tensor]:
        """All tables of a block."""
        return [self.index, self.real, self.share, self.active, *self.draws.values()]

    def load(self, given: Sequence[Assignment]) -> int:
        """Take over a round's work; the number of blocks that it takes."""
        size, steps = len(self.index), max(one.steps for one in given)
        blocks = -(-steps // size)
        tables = [[one.index for one in given], [one.real for one in given], [one.share for one in given]]
        tables.append([torch.ones(one.steps, dtype=torch.bool) for one in given])
        tables += [[one.plan.draws[name] for one in given] for name in self.draws]
        self.whole = [beside(parts, blocks * size, self.index.device) for parts in tables]
        return blocks

    def turn(self, number: int) -> None:
        """Go to the block of this number."""
        size = len(self.index)
        for table, whole in zip(self.block, self.whole, strict=True):
            table.copy_(whole[number * size : (number + 1) * size])


def beside(parts: Sequence[Tensor], length: int, device: torch.device) -> Tensor:
    """The sites' parts [steps, ...] side by side, [length, M, ...] on a device; 0 beyond a part's end."""
    whole = parts[0].new_zeros(length, len(parts), *parts[0].shape[1:])
    for m, part in enumerate(parts):
        whole[: len(part), m] = part
    return (whole.pin_memory() if device.type == "cuda" else whole).to(device, non_blocking=True)
