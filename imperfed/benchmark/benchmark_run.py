"""The benchmark of one kind: dataset by dataset all trials, then all runs; what has ended is kept and not repeated."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from imperfed.benchmark.kept import KnownRuns, known_runs
from imperfed.benchmark.kinds import BenchmarkKind, BenchmarkSet
from imperfed.benchmark.members import members
from imperfed.benchmark.records import RUN, BenchmarkRecord, BenchmarkRecords, digest, source_of
from imperfed.benchmark.training import Training, aside, carried_out
from imperfed.core.errors import UsageError
from imperfed.engine.backends.distributed.group import RankLostError
from imperfed.engine.backends.task_pool import cores
from imperfed.experiments.config import Config
from imperfed.experiments.device import Hardware
from imperfed.experiments.parallel import ParallelRuns, paying
from imperfed.experiments.ranks import over_ranks
from imperfed.experiments.reproduction.run_study import MakeConfig
from imperfed.experiments.tuning import Tuning, attempts, best_of, words
from imperfed.experiments.watch import Interrupted, Watch

IN_THIS_PROCESS = {"workers": 1}
"""Every training computes in one process, so that several can go on side by side, and seconds can be compared."""


@dataclass(frozen=True)
class Contender:
    """A method on a dataset, and how it is trained."""

    kind: BenchmarkKind
    dataset: BenchmarkSet
    method: str
    made: str
    make: Callable[[str, int], Config]
    tuning: Tuning
    folder: Path

    @classmethod
    def of(
        cls,
        kind: BenchmarkKind,
        dataset: BenchmarkSet,
        method: str,
        words: Mapping[str, Any],
        make: Callable[[str, int], Config],
        tuning: Tuning,
        folder: Path,
    ) -> Contender:
        """Return it, refusing settings that the method does not have."""
        made = digest(kind, dataset, tuning, words, source_of(make(method, tuning.seed)))
        return cls(kind, dataset, method, made, make, tuning, folder / dataset.name)

    @cached_property
    def tries(self) -> list[dict[str, Any]]:
        """The settings of all trials."""
        return attempts(self.make(self.method, self.tuning.seed), self.tuning)

    def trials(self, records: BenchmarkRecords) -> list[Training]:
        """Return the trials that are not known."""
        new = [self._training(self.tuning.seed, own, number) for number, own in enumerate(self.tries)]
        return [one for one in new if not self._known(one, records)]

    def runs(self, seeds: Sequence[int], records: BenchmarkRecords) -> list[Training]:
        """Return the runs that are not known, with the settings that trials have chosen by rows held out."""
        tried = records.trials(self.dataset.name, self.method, self.made)
        best = best_of((one.score, dict(one.settings)) for one in tried)
        return [one for seed in seeds if not self._known(one := self._training(seed, best), records)]

    def missing(self, seeds: Sequence[int], records: BenchmarkRecords) -> int:
        """Return how many of its trainings are missing; while trials are, what they will choose is not known."""
        trials = len(self.trials(records))
        return trials + len(seeds) if trials else len(self.runs(seeds, records))

    def _known(self, training: Training, records: BenchmarkRecords) -> bool:
        """Return whether it has ended already; not if other settings were tried, or chosen."""
        found = records.known.get(training.record.key)
        return found is not None and dict(found.settings) == dict(training.record.settings)

    def _training(self, seed: int, own: Mapping[str, Any], trial: int = RUN) -> Training:
        config = self.make(" ".join([self.method, *words(own)]), seed)
        record = BenchmarkRecord(self.dataset.name, self.method, self.made, seed, trial, own)
        return Training(config, record, self.tuning, self.kind.figures, self.folder)


@dataclass
class Benchmark:
    """The trainings of one kind, on some datasets."""

    kind: BenchmarkKind
    datasets: Sequence[BenchmarkSet]
    methods: Sequence[str]
    """Empty: all of the kind."""
    seeds: Sequence[int]
    words: Mapping[str, Any]
    """Settings that override the kind's."""
    make: MakeConfig
    tuning: Tuning
    folder: Path
    data: Callable[[BenchmarkSet], str]
    """Returns the name or the path of a dataset, and writes it where it is an example."""
    records: BenchmarkRecords
    log: Callable[[str], None] = lambda text: None
    """Takes one line for every training that has ended."""
    left: Counter[str] = field(default_factory=Counter)
    """How many trainings are missing, by dataset."""
    done: int = 0

    @cached_property
    def contenders(self) -> list[Contender]:
        """All methods on all datasets; settings that cannot be are refused before anything is trained."""
        if not self.seeds:
            raise UsageError("no seed was named")
        if twice := [method for method, times in Counter(self.methods).items() if times > 1]:
            raise UsageError(f"named more than once: {', '.join(twice)}")
        return [one for dataset in self.datasets for one in self._contenders(dataset)]

    def _contenders(self, dataset: BenchmarkSet) -> Iterator[Contender]:
        own = {**self.kind.words(dataset), "data": self.data(dataset), **IN_THIS_PROCESS, **self.words}
        for method in self.methods or members(self.kind, dataset):
            make = self.make(own)
            yield Contender.of(self.kind, dataset, method, self.words, make, self.tuning, self.folder / "runs")

    def carry_out(self, jobs: int, watch: Callable[[], Watch]) -> None:
        """Make all trainings that are missing."""
        for one in self.contenders:
            self.left[one.dataset.name] += one.missing(self.seeds, self.records)
        try:
            with ParallelRuns(jobs) as processes:
                for dataset in self.datasets:
                    own = [one for one in self.contenders if one.dataset == dataset]
                    self._wave([training for one in own for training in one.trials(self.records)], processes, watch)
                    self._wave([one for c in own for one in c.runs(self.seeds, self.records)], processes, watch)
        except (Interrupted, RankLostError) as error:
            first, _, _ = str(error).partition("; ")
            raise type(error)(f"{first}; the same command goes on where it was, in {self.folder}") from error

    def _wave(self, todo: Sequence[Training], processes: ParallelRuns, watch: Callable[[], Watch]) -> None:
        """Make trainings none of which waits for another."""
        most = (processes.jobs or side_by_side(todo[0].config)) if todo else 0
        jobs = min(most, len(todo))
        # The processes are kept for later waves, which may be larger; no more of them start than have something to do.
        trained = in_processes(todo, processes, most, watch) if jobs > 1 else here(todo, watch)
        for record in trained:
            self.records.add(record)
            self.left[record.dataset] -= 1
            self.done += 1
            self.log(self._progress(record, max(1, jobs)))

    def _progress(self, record: BenchmarkRecord, jobs: int) -> str:
        """Return what came of a training, and how long all others may take."""
        is_run, left = record.trial == RUN, sum(self.left.values())
        found = record.figures.get(self.kind.figure) if is_run else record.score
        what = "says nothing" if found is None else f"{found:.3f} on {'test rows' if is_run else 'rows held out'}"
        minutes = self.seconds_left() / jobs / 60
        return (
            f"{self.done} of {self.done + left}: {record.title}: {record.failed or what}; about {minutes:.0f} min left"
        )

    def runs(self) -> KnownRuns:
        """Return the runs with these seeds of all methods of the kind, and of those that were named."""
        own = {(one.dataset.name, one.method): one.made for one in self.contenders}
        found = known_runs(self.kind, self.datasets, self.records, self.tuning, self.words, own)
        return {
            name: {
                method: kept for method, runs in of_set.items() if (kept := [r for r in runs if r.seed in self.seeds])
            }
            for name, of_set in found.items()
        }

    def seconds_left(self) -> float:
        """Return how many seconds all missing trainings take, by the mean of those on the same dataset or on all."""
        known: dict[str, list[float]] = {}
        for record in self.records.known.values():
            known.setdefault(record.dataset, []).append(record.seconds)
        usual = statistics.fmean(second for found in known.values() for second in found) if known else 0.0
        means = {name: statistics.fmean(found) for name, found in known.items()}
        return sum(count * means.get(name, usual) for name, count in self.left.items())


def side_by_side(config: Config) -> int:
    """Return how many trainings to make side by side: one per core, or as many as pay off on a GPU."""
    hardware = Hardware.of(config.run)
    return cores() if hardware.device.type == "cpu" and not over_ranks(hardware) else paying(config)


def here(todo: Sequence[Training], watch: Callable[[], Watch]) -> Iterator[BenchmarkRecord]:
    """Yield what came of these trainings, one after the other in this process."""
    stop = watch().stop
    for training in todo:
        if stop():
            raise Interrupted("interrupted")
        yield carried_out(training, lambda: Watch(stop=stop))


def in_processes(
    todo: Sequence[Training], processes: ParallelRuns, jobs: int, watch: Callable[[], Watch]
) -> Iterator[BenchmarkRecord]:
    """Yield what came of these trainings, as they end in several processes."""
    calls, first = [(training,) for training in todo], todo[0]
    for _, record in processes.as_they_end(jobs, aside, calls, first.config, first.folder, watch().stop):
        yield record
