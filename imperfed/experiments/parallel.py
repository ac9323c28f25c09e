"""Runs of several seeds side by side, each seed in a process of its own."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing.synchronize import Event
from pathlib import Path
from types import TracebackType

import torch

from imperfed.core.errors import DivergedError
from imperfed.data.federate import FederatedData
from imperfed.experiments.config import Config
from imperfed.experiments.device import Hardware
from imperfed.experiments.experiment import Interrupted, Watch, load_data, refuse_other_labels, same_data, start
from imperfed.results.summary import Summary

ON_A_GPU, ROOM = 3, 40e9
"""Processes that pay on one GPU: what one of them does on the host, another covers. Bytes it must have for them."""
Outcome = Summary | str
"""A run's summary, or what was said of it where it diverged."""
LOOK = 0.1
"""Seconds between two looks whether to stop."""
# Not forked: a process that has used a GPU cannot give it to its children.
SPAWN = multiprocessing.get_context("spawn")
_stopping: Event


class ParallelRuns:
    """Processes that are started when first needed and kept to the end; `jobs` = 0: as many as pay on the device."""

    def __init__(self, jobs: int = 0) -> None:
        self.jobs = jobs
        self.pool: ProcessPoolExecutor | None = None
        self.stopping: Event

    def __enter__(self) -> ParallelRuns:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.pool is None:
            return
        self.stopping.set()  # those that still run end with a checkpoint
        if kind is KeyboardInterrupt:  # unless it is to be at once
            for child in multiprocessing.active_children():
                child.terminate()
        self.pool.shutdown(cancel_futures=True)

    def outcomes(
        self, configs: Sequence[Sequence[Config]], folder: Path, watch: Callable[[], Watch]
    ) -> Iterator[Sequence[Outcome]]:
        """What came of the runs of every seed, in order."""
        jobs = min(self.jobs or paying(configs[0][0]), len(configs))
        if jobs <= 1:
            yield from (of_one_seed(runs, folder, watch) for runs in configs)
            return
        interrupted, stop = [], watch().stop
        for future in self._begun(jobs, configs, folder):
            while wait([future], LOOK).not_done:
                if stop():
                    self.stopping.set()
            if isinstance(error := future.exception(), Interrupted):
                interrupted.append(str(error))
            elif not interrupted:
                yield future.result()
        if interrupted:
            raise Interrupted("\n".join(interrupted))

    def _begun(self, jobs: int, configs: Sequence[Sequence[Config]], folder: Path) -> list[Future[list[Outcome]]]:
        """The runs of every seed, given to the processes."""
        if self.pool is None:
            self.stopping = SPAWN.Event()
            self.pool = ProcessPoolExecutor(jobs, SPAWN, _listen, (self.stopping,))
        # A terminal sends Ctrl-C to all, but only this process decides what it means: the others inherit the mask.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            return [self.pool.submit(aside, runs, folder) for runs in configs]
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def paying(config: Config) -> int:
    """Seeds side by side: several on a large GPU, one on a small one and on a CPU, all of which a run takes."""
    place = Hardware.of(config.run)
    if place.device.type == "cpu" or torch.cuda.get_device_properties(place.device).total_memory < ROOM:
        return 1
    return ON_A_GPU


def _listen(stopping: Event) -> None:
    """In another process, before its first runs: know how it will be told to stop, after a round or at once."""
    global _stopping
    _stopping = stopping
    # A run that is simply ended would leave its workers to the end of their steps, and the pool would wait for them.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())


def aside(runs: Sequence[Config], folder: Path) -> list[Outcome]:
    """The runs of one seed in another process, which says when each begins: its rounds would be too many lines."""
    if _stopping.is_set():
        raise Interrupted(f"seed {runs[0].run.seed} was not begun")
    began, number = time.perf_counter(), 0

    def begin(config: Config, data: FederatedData, round: int) -> None:
        nonlocal number
        left = (time.perf_counter() - began) / number * (len(runs) - number) if number else None
        until = "" if left is None else f", about {left:.0f} s left"
        number += 1
        print(f"seed {config.run.seed}: {config.run.title}, {number} of {len(runs)}{until}", flush=True)

    return of_one_seed(runs, folder, lambda: Watch(begin=begin, stop=_stopping.is_set))


def of_one_seed(runs: Sequence[Config], folder: Path, watch: Callable[[], Watch]) -> list[Outcome]:
    """What came of the runs of one seed; before any of them trains, all are known to learn from their labels."""
    outcomes: list[Outcome] = []
    data = DataCache()
    watch().prepare(runs[0])
    for one in runs:
        refuse_other_labels(one, data.scene(one))
    for one in runs:
        watching = watch()
        watching.prepare(one)
        try:
            outcomes.append(start(one, folder, watching, data.scene(one))[1])
        except DivergedError as error:
            outcomes.append(str(error))
    return outcomes


class DataCache:
    """The data read last: runs on the same data that follow each other have them read once."""

    def __init__(self) -> None:
        self.last: tuple[Config, FederatedData] | None = None

    def scene(self, config: Config) -> FederatedData:
        """The data of a run, before any attack or repair."""
        if self.last is None or not same_data(self.last[0], config):
            self.last = config, load_data(config)
        return self.last[1]
