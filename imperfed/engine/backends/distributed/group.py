"""The ranks of a run and how they talk: words from rank 0 to all, answers from each to rank 0, tensors in place."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from imperfed.core.errors import ImperfedError, UsageError
from imperfed.engine.backends.distributed.packing import packed, unpacked

LONGEST_WAIT = timedelta(hours=24)
"""How long a rank waits for another that is alive: for a round of training, or for the data to be prepared.

The end of a process closes its connections, and the others notice it at once; see also `GONE`."""
GONE = 120
"""Seconds without any sign from another machine, after which the system calls a connection to it lost."""
ASKED = 15
"""Seconds of silence between two questions of the system to another whether it is there; processes notice nothing."""
ENVELOPE = 1 << 13
"""Bytes of the first part of a message, which tells its length; most messages have no second one."""
SHOWN = 4
"""The most sites of a lost rank that a message names."""


class RankLostError(ImperfedError):
    """Another rank has ended, and with it what its sites remember; the run goes on from its last checkpoint."""


@dataclass
class RankGroup:
    """The ranks as one of them sees them. Rank 0 carries the run out, and the others do what it tells them."""

    rank: int
    size: int
    names: list[Sequence[str]] = field(default_factory=list)
    """The names of every rank's sites, for messages."""
    told_to_end: bool = False
    """Whether this process received SIGTERM, as from torchrun when another rank has ended."""
    outbox: dict[int, list[Any]] = field(default_factory=dict)
    """What each rank will be told."""
    board: Any = None
    """A store in which all ranks see the same notes; None where another program has joined them."""

    @classmethod
    def join(cls, on_gpu: bool, store: Any = None, rank: int = -1, size: int = -1) -> RankGroup:
        """Join the other ranks: those that torchrun's variables name, or those that meet at a store."""
        if not dist.is_available():
            raise UsageError("this build of torch has no torch.distributed, so a run cannot have several ranks")
        if not dist.is_initialized():
            backends = "cpu:gloo,cuda:nccl" if on_gpu else "cpu:gloo"
            before = open_sockets()
            if store is None:
                store, rank, size = next(dist.rendezvous("env://", timeout=LONGEST_WAIT))  # type: ignore[attr-defined]
            dist.init_process_group(backends, timeout=LONGEST_WAIT, store=store, rank=rank, world_size=size)
            watch([number for name, number in open_sockets().items() if name not in before])
        board = None if store is None else dist.PrefixStore("imperfed", store)  # type: ignore[attr-defined]
        return cls(dist.get_rank(), dist.get_world_size(), board=board)

    def note_end(self, number: int, frame: FrameType | None) -> None:
        """Note, as a handler of SIGTERM, that this process was told to end.

        It does so, with a message, when it next turns to another rank.
        """
        self.told_to_end = True

    # -- words: whatever `packing.py` can write ----------------------------------------------------------------------

    def tell(self, words: Any, to: int | None = None) -> None:
        """Have words for one rank, or for all others; `flush` and whatever waits for a rank send them."""
        for rank in range(1, self.size) if to is None else (to,):
            self.outbox.setdefault(rank, []).append(words)

    def flush(self) -> None:
        """Send each rank what it was told, all in one message."""
        outbox, self.outbox = self.outbox, {}
        for rank, words in outbox.items():
            with self._noticing(rank):
                _send(packed(words), rank)

    def answer(self, words: Any) -> None:
        """Send words to rank 0."""
        with self._noticing(0):
            _send(packed(words), 0)

    def hear(self, rank: int = 0) -> Any:
        """Return the next words of a rank; from rank 0, a list of all that it has told."""
        self.flush()
        with self._noticing(rank):
            return unpacked(_receive(rank))

    def converse(self, words: Any, rank: int) -> Any:
        """Tell a rank one thing and return its answer; each of several threads may do so with a rank of its own."""
        with self._noticing(rank):
            _send(packed([words]), rank)
            return unpacked(_receive(rank))

    def note(self, text: str) -> None:
        """Let all ranks find this text, also while they do something else."""
        with self._noticing(None):
            if self.board is not None:
                self.board.set(text, "")

    def has_noted(self, text: str) -> bool:
        """Return whether some rank has noted this text."""
        with self._noticing(None):
            return self.board is not None and bool(self.board.check([text]))

    # -- tensors, which all ranks name in the same order -----------------------------------------------------------

    def spread(self, t: Tensor) -> None:
        """Write rank 0's numbers into this tensor of every rank."""
        self.flush()
        with self._noticing(None):
            if t.is_contiguous():
                dist.broadcast(t, 0)
            else:
                dense = t.contiguous()
                dist.broadcast(dense, 0)
                t.copy_(dense)

    def add_up(self, t: Tensor) -> None:
        """Add up this tensor over all ranks, at rank 0."""
        self.flush()
        with self._noticing(None):
            dist.reduce(t, 0)

    def leave(self) -> None:
        """End the connections."""
        dist.destroy_process_group()

    @contextmanager
    def _noticing(self, rank: int | None) -> Iterator[None]:
        """Turn the error of a connection that has ended into one that says who is missing."""
        if self.told_to_end:
            raise RankLostError("this run was told to end (SIGTERM), as torchrun does when another rank has ended")
        try:
            yield
        except RuntimeError as error:
            reason = str(error).split("] ", 1)[-1].split(". ")[0]
            raise RankLostError(f"{self._who(rank)} has ended ({reason})") from error

    def _who(self, rank: int | None) -> str:
        if rank is None:
            return f"one of the {self.size} ranks"
        sites = self.names[rank] if rank < len(self.names) else ()
        more = f" and {len(sites) - SHOWN} more" if len(sites) > SHOWN else ""
        return f"rank {rank}" + (f", which holds {', '.join(sites[:SHOWN])}{more}," if sites else "")


def watch(sockets: Collection[int]) -> None:
    """Let the system ask over these connections from time to time whether the other machine is still there.

    A machine that loses its power or its network closes no connection, and gloo would wait for it.
    """
    for number in sockets:
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:  # it may be none of TCP
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, ASKED)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, ASKED)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, GONE // ASKED)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * GONE)


def open_sockets() -> dict[str, int]:
    """Return the descriptors of this process's sockets by what the system calls them."""
    sockets = {}
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor by which the folder itself was read
            sockets[os.readlink(f"/proc/self/fd/{number}")] = int(number)
    return {name: number for name, number in sockets.items() if name.startswith("socket:")}


def _send(content: bytearray, rank: int) -> None:
    room = ENVELOPE - 8
    envelope = len(content).to_bytes(8, "little") + content[:room].ljust(room, b"\0")
    dist.send(torch.frombuffer(bytearray(envelope), dtype=torch.uint8), rank)
    if rest := content[room:]:
        dist.send(torch.frombuffer(rest, dtype=torch.uint8), rank)


def _receive(rank: int) -> bytearray:
    room, envelope = ENVELOPE - 8, bytearray(ENVELOPE)
    dist.recv(torch.frombuffer(envelope, dtype=torch.uint8), rank)
    size = int.from_bytes(envelope[:8], "little")
    content = envelope[8 : 8 + min(size, room)]
    if size > room:
        rest = bytearray(size - room)
        dist.recv(torch.frombuffer(rest, dtype=torch.uint8), rank)
        content += rest
    return content
