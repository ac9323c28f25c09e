"""Whole runs side by side, one at each rank, which makes it as a process does that knows of no others.

Rank 0 hands them out, and makes its own in one more process, so that it can hear the others meanwhile.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing.synchronize import Event
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from imperfed.core.errors import DataError, DiskFullError, DivergedError, ImperfedError, QuorumError, UsageError
from imperfed.core.loading import import_path
from imperfed.engine.backends.distributed.follower import Task, Trouble
from imperfed.engine.backends.distributed.group import RankGroup, RankLostError
from imperfed.experiments.device import take_own_part
from imperfed.experiments.stopping import stop_with
from imperfed.experiments.watch import Interrupted

CALLED = {
    "imperfed.experiments.parallel:aside",
    "imperfed.experiments.parallel:of_one_seed",
    "imperfed.experiments.sweep.sweep_trial:trials_of",
    "imperfed.experiments.tuning:aside",
    "imperfed.benchmark.training:aside",
}
"""The functions that one rank may ask another to call."""
KINDS = {
    kind.__name__: kind for kind in (Interrupted, UsageError, DataError, DiskFullError, DivergedError, QuorumError)
}
"""The errors that cross to rank 0 as what they are."""
NUMBERS = count()
Item = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Named:
    """A function by its import path."""

    path: str

    def function(self) -> Callable[..., Any]:
        """Return the function; refuse any that makes no runs."""
        if self.path not in CALLED:
            raise UsageError(f"no rank calls {self.path!r} for another")
        module, _, name = self.path.partition(":")
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return function


@dataclass(frozen=True)
class Flag:
    """A word to all ranks that they are to stop."""

    group: RankGroup
    name: str

    def is_set(self) -> bool:
        """Return whether it was given."""
        return self.group.has_noted(self.name)


@dataclass(frozen=True)
class Failed:
    """An error that a run ended with at another rank."""

    kind: str
    message: str


@dataclass(frozen=True)
class Work(Task):
    """The call of a function that makes runs; the settings in its arguments say everything else."""

    function: Named
    arguments: tuple[Any, ...]
    folder: str
    """Where the runs will be."""
    flag: str

    def carry_out(self, group: RankGroup) -> Any:
        """Call the function; return what it returns, or the error that it raises."""
        try:
            if not Path(self.folder).is_dir():
                raise UsageError(
                    f"rank {group.rank} does not see {self.folder}: for whole runs on several machines, let --out name "
                    "a folder on a disk that all of them share, or spread every run over all ranks (--jobs 1)"
                )
            take_own_part()
            stop_with(Flag(group, self.flag))
            arguments = [one.function() if isinstance(one, Named) else one for one in self.arguments]
            return self.function.function()(*arguments)
        except ImperfedError as error:
            return Failed(type(error).__name__, str(error))


class RankPool:
    """What makes calls at the ranks, as far as it is used here like an executor of processes."""

    def __init__(self, group: RankGroup, jobs: int, own: ProcessPoolExecutor, folder: Path, event: Event) -> None:
        """`own`: the process that computes beside rank 0; `event`: what stops it."""
        self.group, self.own, self.folder, self.event = group, own, folder, event
        self.flag = f"stop {next(NUMBERS)}"
        self.calls: SimpleQueue[Item | None] = SimpleQueue()
        self.threads = [Thread(target=self._serve, args=(rank,), daemon=True) for rank in range(jobs)]
        folder.mkdir(parents=True, exist_ok=True)
        group.names = []  # those of an earlier run

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have a function called at the next rank that has nothing to do."""
        future: Future[Any] = Future()
        self.calls.put((future, work, arguments))
        for thread in self.threads:
            if thread.ident is None:
                thread.start()  # which holds back the signals that are held back now, as do its processes
        return future

    def set(self) -> None:
        """Let all runs stop after the round that they are in."""
        self.event.set()
        with suppress(RankLostError):
            self.group.note(self.flag)

    def shutdown(self, cancel_futures: bool = False) -> None:
        """Wait for all calls that have begun; `cancel_futures`: those that have not are dropped."""
        while cancel_futures and not self.calls.empty():
            if (item := self.calls.get()) is not None:
                item[0].cancel()
        for _ in self.threads:
            self.calls.put(None)
        for thread in self.threads:
            if thread.ident is not None:
                thread.join()
        self.own.shutdown()

    def _serve(self, rank: int) -> None:
        """Have one rank make one call after the other, until it is lost."""
        while (item := self.calls.get()) is not None:
            future, work, arguments = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._called(rank, work, arguments))
            except BaseException as error:
                future.set_exception(error)
                if isinstance(error, RankLostError):
                    self.set()
                    return

    def _called(self, rank: int, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Return what a function returns at a rank, or raise its error."""
        if rank == 0:
            try:
                return self.own.submit(work, *arguments).result()
            except SystemExit as error:  # torchrun ends the whole process group of a rank
                raise Interrupted("a run at rank 0 was told to end (SIGTERM)") from error
        named = [Named(import_path(one)) if callable(one) else one for one in arguments]
        call = Work(Named(import_path(work)), tuple(named), str(self.folder.absolute()), self.flag)
        result = self.group.converse(call, rank)
        if isinstance(result, Failed):
            raise KINDS.get(result.kind, ImperfedError)(result.message)
        if isinstance(result, Trouble):
            raise ImperfedError(f"rank {rank}: {result.reason}")
        return result
