"""Pools that run tasks in the calling process or in worker processes of one thread each, with the same results."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from imperfed.core.errors import DataError
from imperfed.core.threads import one_thread
from imperfed.engine.failures import Crashed, Unreadable

Task = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function whose first argument is the workers' context, and its further arguments."""


class TaskPool(Protocol):
    """Carries out tasks. Each result comes with the number of its task, in the order in which they end."""

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Any]]:
        """Yield (task number, result or Failure)."""

    def close(self) -> None:
        """Shut the workers down."""


def attempt(context: Any, task: Task) -> Any:
    """Return a task's result, or a failure that says what went wrong."""
    function, arguments = task
    try:
        return function(context, *arguments)
    except DataError as error:
        return Unreadable(str(error))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Crashed(f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})")


class InlinePool:
    """Runs tasks in the calling process."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Any]]:
        with one_thread():
            for number, task in enumerate(tasks):
                yield number, attempt(self.context, task)

    def close(self) -> None:
        pass


@dataclass
class Worker:
    """A worker process, our end of its pipe, and the number of the task it is working on."""

    process: BaseProcess
    pipe: Connection
    task: int | None = None


class ProcessPool:
    """Runs tasks in forked processes. They see the context at the fork, and later changes in shared memory only."""

    def __init__(self, context: Any, workers: int) -> None:
        self.context = context
        self.forking = multiprocessing.get_context("fork")
        # With one worker per core, each is pinned to its own: the scheduler may put two on one core and leave one idle.
        allowed = sorted(os.sched_getaffinity(0))
        self.places: list[set[int]] = (
            [{core} for core in allowed] if workers == len(allowed) else [set(allowed)] * workers
        )
        self.workers = [self._start(place) for place in range(workers)]

    def _start(self, place: int) -> Worker:
        ours, theirs = self.forking.Pipe()
        arguments = (self.context, theirs, ours, self.places[place])
        process = self.forking.Process(target=_work, args=arguments, daemon=True)
        process.start()
        theirs.close()
        return Worker(process, ours)

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Any]]:
        waiting = deque(range(len(tasks)))
        while waiting or any(w.task is not None for w in self.workers):
            for place, worker in enumerate(self.workers):
                if worker.task is None and waiting:
                    if not worker.process.is_alive():
                        worker = self.workers[place] = self._start(place)
                    worker.task = waiting.popleft()
                    with suppress(ConnectionError):  # a worker that has just died is noticed when its answer is read
                        worker.pipe.send(tasks[worker.task])
            busy = {w.pipe: w for w in self.workers if w.task is not None}
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                number, worker.task = worker.task, None
                assert number is not None
                yield number, self._receive(worker)

    def _receive(self, worker: Worker) -> Any:
        try:
            return worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            place = self.workers.index(worker)
            self.workers[place] = self._start(place)
            return Crashed(f"its worker process ended with code {worker.process.exitcode}")

    def close(self) -> None:
        for worker in self.workers:
            worker.pipe.close()
        for worker in self.workers:
            worker.process.join(timeout=5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


def _work(context: Any, pipe: Connection, parents_end: Connection, cores: set[int]) -> None:
    """Serve tasks until the pipe is closed, which also happens when the parent is killed."""
    parents_end.close()
    os.sched_setaffinity(0, cores)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interrupts
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # which the parent may handle in its own way
    torch.set_num_threads(1)
    try:
        while True:
            pipe.send(attempt(context, pipe.recv()))
    except (EOFError, ConnectionError):
        os._exit(0)


def make_pool(context: Any, workers: int) -> TaskPool:
    """Return a pool of processes where they help and can be forked safely, otherwise one in the calling process."""
    if workers > 1 and sys.platform == "linux" and not unforkable():
        return ProcessPool(context, workers)
    return InlinePool(context)


def unforkable() -> bool:
    """Return whether autograd has started GPU threads: a forked process lacks them and cannot even train on a CPU."""
    for thread in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # the thread has just ended
            if thread.read_text().startswith("pt_autograd"):
                return True
    return False


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def portable(tree: dict[str, torch.Tensor]) -> dict[str, np.ndarray[Any, Any]]:
    """Return plain arrays, which cross a pipe as bytes; tensors would cross as file handles."""
    # Copies: an answer may be a view of the network's gradient, and in the calling process the next site overwrites it.
    return {name: t.detach().clone().numpy() for name, t in tree.items()}
