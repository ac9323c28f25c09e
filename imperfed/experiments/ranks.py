"""The ranks of this program: joined where torchrun has started them, or started here, one for each of several GPUs."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from imperfed.engine.backends.base import Backend
from imperfed.engine.backends.distributed.crossing import UnreadableMessageError
from imperfed.engine.backends.distributed.distributed_backend import DistributedBackend
from imperfed.engine.backends.distributed.follower import Leave, RankDevice, follow
from imperfed.engine.backends.distributed.group import RankGroup, RankLostError
from imperfed.engine.backends.task_pool import cores
from imperfed.engine.engine import MakeBackend
from imperfed.engine.population import Population
from imperfed.experiments.config import Config
from imperfed.experiments.device import Hardware, is_by_itself, own_gpu
from imperfed.experiments.run_data import anywhere, load_data

PLACE = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "GLOO_SOCKET_IFNAME")
"""The variables that say which rank a process is, and how the ranks of one machine find each other."""

_joined: RankGroup | None = None
_children: list[subprocess.Popen[bytes]] = []
_gpus: tuple[int, ...] = ()
"""The GPUs for which ranks were started here; empty if they were started for none."""
_before: dict[str, str | None] = {}
"""The variables of `PLACE` before ranks were started here."""


@dataclass(frozen=True)
class RankHardware(RankDevice):
    """Where each rank computes: on a GPU of its own, or on its part of the cores that this machine's ranks share."""

    hardware: Hardware
    """That of rank 0."""
    lazy: Config | None = None
    """The settings of a run whose inputs are lazy: every rank opens the files by itself."""

    def device(self) -> torch.device:
        """Return the device of this rank, made ready."""
        return self._own().device

    def open_inputs(self) -> list[Tensor]:
        """Return the inputs of a lazy run as this rank finds them."""
        if self.lazy is None:
            return []
        data = load_data(self.lazy)
        return [data.federation.x, *data.oracle.test_x]

    def make_backend(self, population: Population, on_duty: int, workers: int) -> Backend:
        """Return the backend of this rank's device."""
        if self.hardware.device.type == "cpu":
            workers = workers or max(1, cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        return self._own().local_backend(population, on_duty, workers)

    def _own(self) -> Hardware:
        """Return the hardware of this rank."""
        if self.hardware.device.type == "cpu":
            return self.hardware
        gpu = own_gpu(self.hardware.gpus or range(torch.cuda.device_count()))
        own = replace(self.hardware, device=torch.device("cuda", gpu))
        torch.cuda.set_device(own.device)
        own.prepare()
        return own


def backend_of(hardware: Hardware, lazy: Config | None = None) -> MakeBackend:
    """Return what makes the backend of a run: over the ranks, if there are several, or that of the device alone.

    `lazy`: the settings of a run with lazy inputs.
    """
    place, group = RankHardware(hardware, lazy and anywhere(lazy)), group_for(hardware)
    if group is None:
        return place.make_backend if is_by_itself() and hardware.device.type == "cpu" else hardware.local_backend
    return lambda population, on_duty, workers: DistributedBackend(population, on_duty, workers, group, place)


def group_for(hardware: Hardware) -> RankGroup | None:
    """Return the ranks that share the work on this hardware, started if need be; None if there is but one."""
    global _gpus
    if _gpus and hardware.gpus != _gpus:  # those of an earlier run of this process
        stop_ranks()
    if _joined is None and len(hardware.gpus) > 1:
        start_ranks(len(hardware.gpus))
        _gpus = hardware.gpus
    return _joined


def over_ranks(hardware: Hardware) -> bool:
    """Return whether every run on this hardware is spread over several ranks."""
    return len(hardware.gpus) > 1 or (_joined is not None and not _gpus)


def ranks_of(hardware: Hardware) -> int:
    """Return how many ranks there are for runs on this hardware."""
    return 1 if not over_ranks(hardware) else len(hardware.gpus) if _joined is None else _joined.size


def several() -> bool:
    """Return whether torchrun has started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "LOCAL_RANK" in os.environ


def as_one_of_several(program: Callable[[], None]) -> None:
    """Run the program at rank 0; at the other ranks, do what it says and print nothing."""
    global _joined
    group = _join()
    if group.rank > 0:
        _follow(group)
        return
    _joined = group
    signal.signal(signal.SIGTERM, group.note_end)
    try:
        program()
    finally:
        _end(group)


def _join(**where: Any) -> RankGroup:
    if os.environ.get("WORLD_SIZE") == os.environ.get("LOCAL_WORLD_SIZE"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # ranks on one machine need no network
    on_gpu = torch.cuda.is_available() and int(os.environ.get("LOCAL_RANK", "0")) < torch.cuda.device_count()
    return RankGroup.join(on_gpu, **where)


def _follow(group: RankGroup) -> None:
    """Carry out what rank 0 says; its end is this rank's end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # rank 0 handles interrupts
    try:
        follow(group)
    except RankLostError:
        sys.exit(1)
    except UnreadableMessageError as error:
        print(f"error: rank {group.rank}: {error}", file=sys.stderr)
        sys.exit(1)
    group.leave()


def _end(group: RankGroup) -> None:
    """Let the other ranks end as well; if this process ends in the middle of an exchange, they notice it."""
    global _joined
    _joined = None
    with suppress(RankLostError):
        if not isinstance(sys.exception(), KeyboardInterrupt | RankLostError):
            group.tell(Leave())
            group.flush()
            group.leave()


# -- ranks that are started here -------------------------------------------------------------------------------------


def start_ranks(size: int) -> RankGroup:
    """Start the other ranks on this machine; this process becomes rank 0, until `stop_ranks` or its end."""
    global _joined
    store = _meeting(0, size)
    _before.update({name: os.environ.get(name) for name in PLACE})
    os.environ |= _places(0, size)
    _children.extend(_started(rank, size, store.port) for rank in range(1, size))
    _joined = _join(store=store, rank=0, size=size)
    atexit.register(stop_ranks)
    return _joined


def stop_ranks() -> None:
    """End the ranks that were started here; others may be started afterwards."""
    global _gpus
    atexit.unregister(stop_ranks)
    if _joined is not None:
        _end(_joined)
    if dist.is_initialized():  # where a rank was lost
        dist.destroy_process_group()
    for child in _children:
        with suppress(subprocess.TimeoutExpired):
            child.wait(5)
        child.kill()
        child.wait()
    _children.clear()
    _gpus = ()
    for name, value in _before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    _before.clear()


def children() -> list[int]:
    """Return the process numbers of the ranks that were started here."""
    return [child.pid for child in _children]


def _meeting(port: int, size: int) -> Any:
    """Return the store at which the ranks of this machine meet; port 0: a new one, at a free port."""
    listening: dict[str, Any] = {}
    if not port:  # torch itself would listen on all interfaces
        server = socket.create_server(("127.0.0.1", 0))
        port, listening = server.getsockname()[1], {"is_master": True, "master_listen_fd": server.detach()}
    return dist.TCPStore("127.0.0.1", port, size, wait_for_workers=False, **listening)  # type: ignore[attr-defined]


def _places(rank: int, size: int) -> dict[str, str]:
    """Return torchrun's variables for a rank of a single machine."""
    return {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size), "WORLD_SIZE": str(size)}


def _started(rank: int, size: int, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "imperfed.experiments.ranks", str(rank), str(size), str(port)]
    threads = {"OMP_NUM_THREADS": str(max(1, cores() // size))}  # as torchrun does: ranks share the cores
    return subprocess.Popen(command, env=threads | os.environ | _places(rank, size), stdin=subprocess.DEVNULL)


def _as_child(rank: int, size: int, port: int) -> None:
    """Be one of the ranks that another process has started."""
    _follow(_join(store=_meeting(port, size), rank=rank, size=size))


if __name__ == "__main__":
    _as_child(*map(int, sys.argv[1:]))
