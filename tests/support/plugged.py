"""Distributions with entry points, made by hand: a module, and the record that an installer would leave."""

from __future__ import annotations

from pathlib import Path

EXTRAS = '''
"""Entries for several lists."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from imperfed.algorithms.cross_entropy import CrossEntropy
from imperfed.core.algorithm import Algorithm
from imperfed.data.dataset import Dataset
from imperfed.data.partitions.iid import IIDPartition
from imperfed.data.source import Source


@dataclass(frozen=True)
class Turns(IIDPartition):
    """Rows in turns."""

    name: ClassVar[str] = "turns"

    def divide(self, rows, sites, generator):
        return [np.arange(k, rows.count, sites) for k in range(sites)]


@dataclass(frozen=True)
class Unfinished(Algorithm):
    """A setting without a default."""

    name: ClassVar[str] = "unfinished"
    objective: object = None

    def __post_init__(self):
        raise ValueError("beta is missing")


@dataclass(frozen=True)
class Own(Algorithm):
    """Plain averaging by another name."""

    name: ClassVar[str] = "own"


@dataclass(frozen=True)
class Ahead(CrossEntropy):
    """Claims to be the default, and its name comes first."""

    name: ClassVar[str] = "aaa"
    reference: ClassVar[bool] = True


def tiny(shape, classes):
    """One linear layer, flattened."""
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), classes))


def read(folder):
    y = torch.arange(60) % 3
    return Dataset("points", torch.eye(3)[y] + 0.1 * torch.rand(60, 3), y, None, ("a", "b", "c"))


POINTS = Source("points", "Three points", read, "computed")
'''


def distribution(folder: Path, name: str, module: str, **groups: dict[str, str]) -> Path:
    """Write a distribution of one module; `groups`: its entry points."""
    path = name.replace("-", "_")
    info = folder / f"{path}-1.2.dist-info"
    info.mkdir(parents=True)
    (folder / f"{path}.py").write_text(module)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "RECORD").write_text(f"{path}.py,,\n")
    lines = [
        f"[imperfed.{group}]\n" + "".join(f"{entry} = {where}\n" for entry, where in entries.items())
        for group, entries in groups.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder
