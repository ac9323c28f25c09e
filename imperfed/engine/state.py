"""Everything that a run remembers, in memory that worker processes share, and its checkpoint on disk."""

from __future__ import annotations

import json
import math
import mmap
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.atomic import write_durably, write_whole
from imperfed.core.batch import Tree
from imperfed.core.context import SiteSetup
from imperfed.core.errors import DataError
from imperfed.core.federation import Federation
from imperfed.core.network import Layout
from imperfed.core.objective import Objective
from imperfed.core.tensor_files import check_seal, read_tensors, sealed
from imperfed.engine.best_round import BestRound


def shared(like: Tensor) -> Tensor:
    """Return a copy in anonymous shared memory: the server sees what a forked worker writes."""
    size = like.numel() * like.element_size()
    if size == 0:
        return like.clone()
    return torch.frombuffer(mmap.mmap(-1, size), dtype=like.dtype).view(like.shape).copy_(like)


@dataclass(frozen=True)
class Groups:
    """Which sites share a model. Within its group a site has another number, which is the one an algorithm sees."""

    members: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, federation: Federation) -> Groups:
        """Return the groups of a federation, in the order of their numbers; one group where it names none."""
        group = federation.groups or (0,) * len(federation.sites)
        return cls(tuple(tuple(k for k, g in enumerate(group) if g == name) for name in sorted(set(group))))

    @cached_property
    def homes(self) -> dict[int, tuple[int, int]]:
        """The group of each site, and its number there."""
        return {k: (g, place) for g, sites in enumerate(self.members) for place, k in enumerate(sites)}


@dataclass
class State:
    """The whole memory of a run. Everything else follows from the configuration and the seeds."""

    round: int
    """Rounds completed."""
    servers: list[Tree]
    """What the server remembers, one tree per group."""
    personal: Tensor
    """[K, *]: the weights and buffers that never leave their site; one row, the initial one, for sites elsewhere."""
    memory: Tree
    """[K, ...]: what each site remembers."""
    rows: Tree
    """[N, ...]: what is remembered about each example."""
    best: BestRound | None = None
    """The best round so far; None where no site holds rows out."""

    @classmethod
    def fresh(
        cls,
        algorithm: Algorithm,
        objective: Objective,
        federation: Federation,
        layout: Layout,
        row: Tensor,
        defence: Callable[[int], Tree],
    ) -> State:
        """Return the state before round 0: all sites have the same weights. Sites elsewhere keep their own memory."""
        sizes = [] if federation.elsewhere else federation.sizes()
        start = {"w": row[: layout.shared], "buffers": layout.buffers(row)}
        servers = [
            start | algorithm.init_server(start["w"].clone(), len(sites)) | defence(len(sites))
            for sites in Groups.of(federation).members
        ]
        memories = []
        for k, n in enumerate(sizes):
            labels = federation.labels.between(federation.starts[k], federation.starts[k + 1])
            memories.append(algorithm.init_site(SiteSetup(k, n, labels, layout)))
        return cls(
            0,
            [{name: shared(t) for name, t in server.items()} for server in servers],
            shared(layout.personal(row).expand(len(sizes) or 1, -1)),
            {name: shared(torch.stack([m[name] for m in memories])) for name in next(iter(memories), {})},
            {name: shared(t) for name, t in objective.init_rows(federation.labels).items()},
        )

    def move_to(self, device: torch.device) -> None:
        """Move what the server remembers, and what is remembered about examples, to a device."""
        self.servers = [{name: t.to(device) for name, t in server.items()} for server in self.servers]
        self.rows = {name: t.to(device) for name, t in self.rows.items()}

    @property
    def server(self) -> Tree:
        """What the server remembers, where all sites form one group."""
        (server,) = self.servers
        return server

    def flat(self) -> Tree:
        """Return every tensor under one name, as the checkpoint stores it."""
        tree = {"personal": self.personal}
        parts = {"memory": self.memory, "rows": self.rows}
        parts |= {f"server {g}": server for g, server in enumerate(self.servers)}
        for part, named in parts.items():
            tree |= {f"{part}/{name}": t for name, t in named.items()}
        return tree

    def save(self, path: Path) -> None:
        """Write a checkpoint, completely or not at all; the state of the best round is written before it."""
        metadata, best = {"round": json.dumps(self.round)}, self.best
        if best is not None:
            metadata["best"] = best.words()
            if best.state and best.written != best.round:
                _write(best.path(path), best.state, {})
                best.written = best.round
        keep_older(path)
        _write(path, self.flat(), metadata)
        if best is not None:
            best.forget_others(path)

    def restore(self, path: Path) -> str:
        """Restore a checkpoint of the same run, or the one before it if it is damaged; return a note if so."""
        try:
            self._restore(path)
            return ""
        except DataError as error:
            older = older_of(path)
            if not older.exists():
                raise
            try:
                self._restore(older)
            except DataError:
                raise error from None
            aside = path.with_name(f"damaged-{path.name}")
            path.replace(aside)
            _link(older, path)
            return f"{error}; it is kept as {aside.name}, and the run goes back to the checkpoint before it"

    def _restore(self, path: Path) -> None:
        """Restore one checkpoint; change nothing if it cannot be read."""
        own = self.flat()
        saved, metadata = _read(path, own)
        best = self.best and replace(self.best)
        try:
            round = int(json.loads(metadata["round"]))
            if best is not None:
                best.read(metadata["best"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: not a readable checkpoint ({error})") from error
        if best is not None and best.keep and best.round:
            best.state = _read(best.path(path), own)[0]
        for name, t in saved.items():
            own[name].copy_(t)
        self.round, self.best = round, best

    def return_to_best(self) -> None:
        """Take over the state of the best round; the number of rounds completed stays as it is."""
        assert self.best is not None
        for name, t in self.flat().items():
            t.copy_(self.best.state[name])


def older_of(path: Path) -> Path:
    """Return where the checkpoint before the last one is kept."""
    return path.with_name(f"before-{path.name}")


def keep_older(path: Path) -> None:
    """Keep a checkpoint under another name before a new one takes its place; at any moment there is one under both."""
    if path.exists():
        _link(path, older_of(path))


def _link(path: Path, other: Path) -> None:
    """Give a file another name as well, without a copy where the disk can do that."""

    def link(partial: Path) -> None:
        try:
            partial.unlink(missing_ok=True)
            partial.hardlink_to(path)
        except OSError:
            shutil.copyfile(path, partial)

    if not (other.exists() and other.samefile(path)):
        write_whole(other, link)


def _write(path: Path, tree: Tree, metadata: dict[str, str]) -> None:
    from safetensors.torch import save_file

    contiguous = {name: t.contiguous() for name, t in tree.items()}
    words = sealed(contiguous, metadata)
    write_durably(path, lambda partial: save_file(contiguous, partial, words))


def _read(path: Path, like: Tree) -> tuple[Tree, dict[str, str]]:
    """Return the tensors of a checkpoint, which must have the names, shapes and types of `like`, and its words."""
    saved, words = read_tensors(path, "checkpoint")
    if {n: (t.shape, t.dtype) for n, t in saved.items()} != {n: (t.shape, t.dtype) for n, t in like.items()}:
        raise DataError(f"{path}: the checkpoint belongs to another configuration or to other data than this run")
    check_seal(path, "checkpoint", saved, words)
    return saved, words


def nbytes(tree: Tree) -> int:
    """Return the size of a message in bytes."""
    return sum(math.prod(t.shape) * t.element_size() for t in tree.values())
