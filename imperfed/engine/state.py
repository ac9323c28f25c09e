"""Everything that a run remembers, in memory that worker processes share, and its checkpoint on disk."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree, part_of, prefixed
from imperfed.core.context import SiteSetup
from imperfed.core.errors import DataError
from imperfed.core.federation import Federation
from imperfed.core.network import Layout
from imperfed.core.objective import Objective
from imperfed.engine.best_round import BestRound
from imperfed.engine.checkpoint_files import also_as, keep_older, older_of, read_checkpoint, write_checkpoint
from imperfed.engine.seeds import seeded
from imperfed.engine.shared_memory import shared, shared_room
from imperfed.engine.sites_on_disk import NOWHERE, SitesOnDisk

MEGABYTE = 1_000_000
PERSONAL, MEMORY = "personal", "memory/"
"""The names in a site's record: its personal numbers, and the prefix of its memory's."""
SLOTS = "slots"
"""The name under which a checkpoint has the slots of the sites' records, where these are on disk."""


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
    disk: SitesOnDisk | None = None
    """What stays at the sites, where that is too much for memory: `personal` is then one row, and `memory` empty."""

    @classmethod
    def fresh(
        cls,
        algorithm: Algorithm,
        objective: Objective,
        federation: Federation,
        layout: Layout,
        row: Tensor,
        defence: Callable[[int], Tree],
        seed: int = 0,
        site_memory: float = math.inf,
    ) -> State:
        """Return the state before round 0: all sites have the same weights. Sites elsewhere keep their own memory.

        `site_memory`: the most megabytes that may stay in memory of what all sites remember.
        """
        start = {"w": row[: layout.shared], "buffers": layout.buffers(row)}
        servers = [
            start | algorithm.init_server(start["w"].clone(), len(sites)) | defence(len(sites))
            for sites in Groups.of(federation).members
        ]
        personal, memory, disk = at_sites(algorithm, federation, layout, layout.personal(row), seed, site_memory)
        return cls(
            0,
            [{name: shared(t) for name, t in server.items()} for server in servers],
            personal,
            memory,
            {name: shared(t) for name, t in objective.init_rows(federation.labels).items()},
            disk=disk,
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

    # -- what stays at a site ------------------------------------------------------------------------------------------

    def personal_of(self, k: int) -> Tensor:
        """Return the weights and buffers that never leave a site."""
        if self.disk is None:
            return self.personal[k]
        return self.disk.read(k)[PERSONAL] if self.personal.shape[1] else self.personal[0]

    def kept_at(self, k: int) -> tuple[Tensor, Tree]:
        """Return a site's personal numbers and its memory, as views of memory or as copies of what is on disk."""
        if self.disk is None:
            return self.personal[k], {name: t[k] for name, t in self.memory.items()}
        record = self.disk.read(k)
        return record[PERSONAL], part_of(record, MEMORY)

    def write_back(self, k: int, personal: Tensor, memory: Tree) -> None:
        """Take over what `kept_at` returned, changed; what lies in memory has changed already."""
        if self.disk is not None:
            self.disk.write(k, {PERSONAL: personal} | prefixed(MEMORY, memory))

    def make_room(self, sites: Iterable[int]) -> None:
        """Let these sites change what they keep, in any process."""
        if self.disk is not None:
            self.disk.make_room(sites)

    def lie_in(self, folder: Path) -> None:
        """Say in which folder a file may lie; no effect once there is one."""
        if self.disk is not None and self.disk.file == NOWHERE:
            self.disk.folder = folder

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def flat(self) -> Tree:
        """Return every tensor under one name, as the checkpoint stores it; no record that this names is overwritten."""
        if self.disk is None:
            tree, parts = {"personal": self.personal}, {"memory": self.memory}
        else:
            self.disk.keep_all()
            tree, parts = {SLOTS: self.disk.slots}, {}
        parts["rows"] = self.rows
        parts |= {f"server {g}": server for g, server in enumerate(self.servers)}
        for part, named in parts.items():
            tree |= {f"{part}/{name}": t for name, t in named.items()}
        return tree

    def save(self, path: Path) -> None:
        """Write a checkpoint, completely or not at all; the state of the best round is written before it."""
        metadata, best = {"round": json.dumps(self.round)}, self.best
        if self.disk is not None:
            self.disk.flush()
        if best is not None:
            metadata["best"] = best.words()
            if best.state and best.written != best.round:
                write_checkpoint(best.path(path), best.state, {})
                best.written = best.round
        keep_older(path)
        write_checkpoint(path, self.flat(), metadata)
        if best is not None:
            best.forget_others(path)
        if self.disk is not None:
            self.disk.settle([best.state[SLOTS]] if best is not None and best.state else [])

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
            also_as(older, path)
            return f"{error}; it is kept as {aside.name}, and the run goes back to the checkpoint before it"

    def _restore(self, path: Path) -> None:
        """Restore one checkpoint; change nothing if it cannot be read."""
        own = self.flat()
        saved, metadata = read_checkpoint(path, own)
        best = self.best and replace(self.best)
        try:
            round = int(json.loads(metadata["round"]))
            if best is not None:
                best.read(metadata["best"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: not a readable checkpoint ({error})") from error
        if best is not None and best.keep and best.round:
            best.state = read_checkpoint(best.path(path), own)[0]
        if self.disk is not None:
            self.disk.go_back(path.parent, saved[SLOTS])
        for name, t in saved.items():
            own[name].copy_(t)
        self.round, self.best = round, best

    def return_to_best(self) -> None:
        """Take over the state of the best round; the number of rounds completed stays as it is."""
        assert self.best is not None
        for name, t in self.flat().items():
            t.copy_(self.best.state[name])


def at_sites(
    algorithm: Algorithm, federation: Federation, layout: Layout, own: Tensor, seed: int, most: float
) -> tuple[Tensor, Tree, SitesOnDisk | None]:
    """Return what stays at the sites before round 0: in memory, or on disk where it is more megabytes than `most`.

    `own`: the personal numbers with which every site begins.
    """
    starts, sites = federation.starts, len(federation.sites)

    def memory(k: int) -> Tree:
        labels = federation.labels.between(starts[k], starts[k + 1])
        return first_memory(algorithm, SiteSetup(k, len(labels), labels, layout), seed)

    def record(k: int) -> Tree:
        return {PERSONAL: own} | prefixed(MEMORY, memory(k))

    if federation.elsewhere:
        return shared(own[None]), {}, None
    if sites * nbytes(record(0)) > most * MEGABYTE:
        return shared(own[None]), {}, SitesOnDisk.of(sites, record)
    return shared(own.expand(sites, -1)), laid_out(map(memory, range(sites)), sites), None


def first_memory(algorithm: Algorithm, site: SiteSetup, seed: int) -> Tree:
    """Return a site's memory before its first round; what it draws depends on the seed and the site alone."""
    with seeded(seed, 0, site.index, "memory"):
        return algorithm.init_site(site)


def laid_out(memories: Iterator[Tree], sites: int) -> Tree:
    """Put what so many sites remember side by side, [K, ...], in shared memory."""
    tree: Tree = {}
    for k, memory in enumerate(memories):
        tree = tree or {name: shared_room((sites, *t.shape), t.dtype) for name, t in memory.items()}
        for name, t in tree.items():
            t[k].copy_(memory[name])
    return tree


def nbytes(tree: Tree) -> int:
    """Return the size of a message in bytes."""
    return sum(math.prod(t.shape) * t.element_size() for t in tree.values())
