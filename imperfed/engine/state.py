"""All that a run remembers, in memory that worker processes share, and its checkpoint on disk."""

from __future__ import annotations

import json
import math
import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from imperfed.core import Algorithm, Federation, Objective, Site, Tree
from imperfed.errors import DataError
from imperfed.network import Layout


def shared(like: Tensor) -> Tensor:
    """A copy in anonymous shared memory: what a forked worker writes, the server sees."""
    size = like.numel() * like.element_size()
    if size == 0:
        return like.clone()
    return torch.frombuffer(mmap.mmap(-1, size), dtype=like.dtype).view(like.shape).copy_(like)


@dataclass
class State:
    """The whole memory of a run. Everything else follows from the configuration and the seeds."""

    round: int
    """Rounds completed."""
    server: Tree
    personal: Tensor
    """[K, *]: the weights and buffers that never leave their site."""
    memory: Tree
    """[K, ...]: what each site remembers."""
    rows: Tree
    """[N, ...]: what is remembered of each example."""

    @classmethod
    def fresh(
        cls, algorithm: Algorithm, objective: Objective, federation: Federation, layout: Layout, row: Tensor
    ) -> State:
        """Before round 0: every site starts from the same weights."""
        sizes = federation.sizes()
        server = {"w": row[: layout.shared].clone(), "buffers": layout.buffers(row).clone()}
        server |= algorithm.serve(server["w"], len(sizes))
        opened = []
        for k, n in enumerate(sizes):
            labels = federation.labels.between(federation.starts[k], federation.starts[k + 1])
            opened.append(algorithm.open(Site(k, n, labels, layout)))
        return cls(
            0,
            {name: shared(t) for name, t in server.items()},
            shared(layout.personal(row).expand(len(sizes), -1)),
            {name: shared(torch.stack([o[name] for o in opened])) for name in opened[0]},
            {name: shared(t) for name, t in objective.open(federation.labels).items()},
        )

    def flat(self) -> Tree:
        """Every tensor under one name, as the checkpoint stores it."""
        tree = {"personal": self.personal}
        for part in ("server", "memory", "rows"):
            tree |= {f"{part}/{name}": t for name, t in getattr(self, part).items()}
        return tree

    def save(self, path: Path) -> None:
        """Write a checkpoint whole or not at all."""
        from safetensors.torch import save_file

        path.parent.mkdir(parents=True, exist_ok=True)
        partly = path.with_suffix(".tmp")
        save_file({n: t.contiguous() for n, t in self.flat().items()}, partly, {"round": json.dumps(self.round)})
        with partly.open("rb") as f:
            os.fsync(f.fileno())
        partly.replace(path)

    def restore(self, path: Path) -> None:
        """Take over a checkpoint of the same run."""
        from safetensors import SafetensorError, safe_open

        mine = self.flat()
        try:
            with safe_open(path, framework="pt") as f:
                saved = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118 (it is not a mapping)
                round = int(json.loads(f.metadata()["round"]))
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: not a readable checkpoint ({error})") from error
        if {n: (t.shape, t.dtype) for n, t in saved.items()} != {n: (t.shape, t.dtype) for n, t in mine.items()}:
            raise DataError(f"{path}: the checkpoint belongs to another configuration or other data than this run's")
        for name, t in saved.items():
            mine[name].copy_(t)
        self.round = round


def nbytes(tree: Tree) -> int:
    """The size of a message."""
    return sum(math.prod(t.shape) * t.element_size() for t in tree.values())
