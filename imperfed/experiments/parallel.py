"""Runs of several seeds in parallel, each seed in its own process, or at a rank of its own."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Event
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch

from imperfed.core.errors import DivergedError, ImperfedError
from imperfed.data.federate import FederatedData
from imperfed.engine.backends.distributed.group import RankLostError
from imperfed.experiments.config import Config
from imperfed.experiments.device import Hardware, share_cores, take_own_part
from imperfed.experiments.rank_runs import RankPool
from imperfed.experiments.ranks import group_for, over_ranks, ranks_of
from imperfed.experiments.run_data import anywhere, load_data, same_data
from imperfed.experiments.run_parts import refuse_other_labels
from imperfed.experiments.shared_gpu import SharedGpu
from imperfed.experiments.starting import resume, start
from imperfed.experiments.stopping import stop_is_wanted, stop_with
from imperfed.experiments.watch import Interrupted, Watch
from imperfed.results.folder import RunFolder
from imperfed.results.summary import Summary

ON_A_GPU, ROOM = 3, 40e9
"""How many processes pay off on one GPU (one computes while others work on the host), and the bytes it must have."""
T = TypeVar("T")
CarryOut = Callable[[Sequence[Config], Path, Callable[[], Watch]], T]
"""Makes runs below a folder; a function of a module, so that another process finds it."""
Outcome = Summary | str
"""A run's summary, or the message of a run that diverged."""
UNSEEN = {("rounds", "workers"), ("run", "track")}
"""Settings that nothing in a result shows."""
LOOK = 0.1
"""Seconds between two checks whether to stop."""
# Not forked: a process that has used a GPU cannot share it with forked children.
SPAWN = multiprocessing.get_context("spawn")


class ParallelRuns:
    """Processes, started when first needed and kept to the end; `jobs` = 0: as many as pay off on the device."""

    def __init__(self, jobs: int = 0) -> None:
        self.jobs = jobs
        self.pool: ProcessPoolExecutor | RankPool | None = None
        self.stopping: Event | RankPool
        self.gpu: SharedGpu | None = None
        """How the processes share a GPU; None on a CPU."""

    def __enter__(self) -> ParallelRuns:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.pool is None:
            return
        self.stopping.set()  # those still running stop with a checkpoint
        if kind is KeyboardInterrupt:  # unless they are to stop at once
            for child in multiprocessing.active_children():
                child.terminate()
        try:
            self.pool.shutdown(cancel_futures=True)
        finally:
            if self.gpu is not None:
                self.gpu.end()
        if isinstance(error, BrokenProcessPool):
            raise ImperfedError(
                "a process was killed while it trained, as the system does where memory runs out; what had ended is "
                "kept, and the same command goes on. Fewer processes (--jobs) need less memory"
            ) from error

    def outcomes(
        self, configs: Sequence[Sequence[Config]], folder: Path, watch: Callable[[], Watch]
    ) -> Iterator[Sequence[Outcome]]:
        """Yield the outcomes of every seed's runs, in order; of more processes than seeds, several share a seed's."""
        if not configs:
            return
        hardware, wanted = Hardware.of(configs[0][0].run), self.jobs or paying(configs[0][0])
        most = min(wanted, ranks_of(hardware)) if over_ranks(hardware) else wanted
        parts = [min(max(1, -(-most // len(configs))), len(runs)) for runs in configs]
        cut = [runs[k::n] for runs, n in zip(configs, parts, strict=True) for k in range(n)]
        ended = self.each(of_one_seed, cut, folder, watch)
        for runs, n in zip(configs, parts, strict=True):
            told = [next(ended) for _ in range(n)]
            yield [told[i % n][i // n] for i in range(len(runs))]

    def each(
        self, carry_out: CarryOut[T], configs: Sequence[Sequence[Config]], folder: Path, watch: Callable[[], Watch]
    ) -> Iterator[T]:
        """Yield what a function returns for every group of runs, in order; a process has one group at a time."""
        if not configs:
            return
        jobs = min(self.jobs or paying(configs[0][0]), len(configs))
        if jobs <= 1:
            yield from (carry_out(runs, folder, watch) for runs in configs)
            return
        interrupted, stop = [], watch().stop
        for future in self.begun(jobs, aside, [(carry_out, runs, folder) for runs in configs], configs[0][0], folder):
            while wait([future], LOOK).not_done:
                if stop():
                    self.stopping.set()
            if isinstance(error := future.exception(), Interrupted):
                interrupted.append(str(error))
            elif not interrupted or isinstance(error, RankLostError):
                yield future.result()
        if interrupted:
            raise Interrupted("\n".join(interrupted))

    def as_they_end(
        self,
        jobs: int,
        work: Callable[..., T],
        calls: Sequence[tuple[Any, ...]],
        like: Config,
        folder: Path,
        stop: Callable[[], bool],
    ) -> Iterator[tuple[int, T]]:
        """Yield the place of each of these calls and what it returned, in the order in which they end."""
        places = {future: place for place, future in enumerate(self.begun(jobs, work, calls, like, folder))}
        left = set(places)
        while left:
            ended, left = wait(left, LOOK, FIRST_COMPLETED)
            yield from ((places[future], future.result()) for future in ended)
            if stop():
                raise Interrupted("interrupted")

    def begun(
        self, jobs: int, work: Callable[..., T], calls: Iterable[tuple[Any, ...]], like: Config, folder: Path
    ) -> list[Future[T]]:
        """Submit these calls of a function to the processes, or the ranks; it may ask `stop_is_wanted`.

        `like`: the settings of one of their runs, which are all on the same device; `folder`: where the runs will be.
        """
        if self.pool is None:
            self._start(jobs, Hardware.of(like.run), folder)
            assert self.pool is not None
        # A terminal sends Ctrl-C to all processes, but only this one handles it: the others inherit the mask.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            return [self.pool.submit(work, *call) for call in calls]
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _start(self, jobs: int, hardware: Hardware, folder: Path) -> None:
        """Get the processes ready, or as many ranks; they start with the first call.

        Not while signals are held back: what counts the semaphores of processes lets them through again.
        """
        stopping, group = SPAWN.Event(), group_for(hardware)
        if group is not None:
            own = ProcessPoolExecutor(1, SPAWN, _listen, (stopping, None, True))
            self.pool = self.stopping = RankPool(group, min(jobs, group.size), own, folder, stopping)
            return
        device = hardware.device
        self.gpu = None if device.type == "cpu" else SharedGpu.begin(device.index)
        others = None if self.gpu is None else self.gpu.for_others(jobs)
        told = (stopping, others, False, jobs if device.type == "cpu" else 1)
        self.stopping, self.pool = stopping, ProcessPoolExecutor(jobs, SPAWN, _listen, told)


def paying(config: Config) -> int:
    """Return how many seeds to run in parallel: one per rank, or several on a large GPU; one run fills a CPU."""
    hardware = Hardware.of(config.run)
    if over_ranks(hardware) or hardware.device.type == "cpu":
        return ranks_of(hardware)
    if torch.cuda.get_device_properties(hardware.device).total_memory < ROOM:
        return 1
    return ON_A_GPU


def _listen(stopping: Event, gpu: SharedGpu | None, beside_ranks: bool = False, processes: int = 1) -> None:
    """Prepare another process, before its first run, to be stopped after a round or at once, and to share a GPU.

    `processes`: how many share the cores.
    """
    stop_with(stopping)
    share_cores(processes)
    if beside_ranks:
        take_own_part()
    if gpu is not None:
        gpu.take_part()
    # A process that is simply killed would leave workers that finish their steps, and the pool would wait for them.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())


def aside(carry_out: CarryOut[T], runs: Sequence[Config], folder: Path) -> T:
    """Make some runs in another process, which prints when each begins; lines for its rounds would be too many."""
    if stop_is_wanted():
        raise Interrupted(f"seed {runs[0].run.seed} was not started")
    began, number = time.perf_counter(), 0

    def begin(config: Config, data: FederatedData, round: int) -> None:
        nonlocal number
        left = (time.perf_counter() - began) / number * (len(runs) - number) if number else None
        remaining = "" if left is None else f", about {left:.0f} s left"
        number += 1
        line = f"seed {config.run.seed}: {config.run.title}, {number} of {len(runs)}{remaining}\n"
        print(line, end="", flush=True)  # in one piece: other processes write at the same moment

    def search(doing: str, share: float) -> None:
        print(f"{doing}\n", end="", flush=True)

    return carry_out(runs, folder, lambda: Watch(begin=begin, search=search, stop=stop_is_wanted))


def of_one_seed(runs: Sequence[Config], folder: Path, watch: Callable[[], Watch]) -> list[Outcome]:
    """Return the outcomes of one seed's runs; refuse unsuitable methods before any of them trains."""
    outcomes: list[Outcome] = []
    cache = DataCache(load_data)
    watch().prepare(runs[0])
    for config in runs:
        refuse_other_labels(config, cache.data(config))
    for config in runs:
        watching = watch()
        watching.prepare(config)
        try:
            outcomes.append(finished(config, folder, watching, cache.data(config)))
        except DivergedError as error:
            outcomes.append(str(error))
    return outcomes


def finished(config: Config, folder: Path, watch: Watch, data: FederatedData) -> Summary:
    """Return the summary of a run below this folder: of an earlier one with these settings, continued if need be."""
    earlier = run_of(config, folder)
    if earlier is None:
        return start(config, folder, watch, data)[1]
    return earlier.summary() or resume(earlier, watch, data)


def run_of(config: Config, folder: Path) -> RunFolder | None:
    """Return the run with these settings below this folder, ended or not; None if there is none."""
    wanted = _results_of(anywhere(config).toml())
    paths = sorted(folder.glob("*/config.toml"))
    found = (path for path in paths if _results_of(path.read_text(encoding="utf-8")) == wanted)
    return next((RunFolder(path.parent) for path in found), None)


def _results_of(text: str) -> dict[str, Any]:
    """Return settings without those that change no result; nothing of a file that is cut short."""
    try:
        sections = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}
    return {
        section: {key: value for key, value in settings.items() if (section, key) not in UNSEEN}
        for section, settings in sections.items()
    }


class DataCache:
    """The data loaded last: consecutive runs on the same data load them once."""

    def __init__(self, load: Callable[[Config], FederatedData] = load_data) -> None:
        self.load = load
        self.last: tuple[Config, FederatedData] | None = None

    def data(self, config: Config) -> FederatedData:
        """Return the data of a run, before any attack or repair."""
        if self.last is None or not same_data(self.last[0], config):
            self.last = config, self.load(config)
        return self.last[1]
