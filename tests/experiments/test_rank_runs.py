"""Whole runs side by side, one at each rank: the same bits as one process, and what happens when one fails or dies."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from imperfed.benchmark import training
from imperfed.core.errors import DataError, ImperfedError, UsageError
from imperfed.core.loading import import_path
from imperfed.engine.backends.distributed.group import GONE, RankGroup, open_sockets
from imperfed.experiments import parallel, ranks, tuning
from imperfed.experiments.config import Config
from imperfed.experiments.parallel import ParallelRuns, paying
from imperfed.experiments.rank_runs import CALLED, Flag, Named, RankPool, Work
from imperfed.experiments.resolving import resolve
from imperfed.experiments.sweep.sweep_trial import trials_of
from imperfed.experiments.watch import Interrupted, Watch
from imperfed.results.folder import RunFolder
from imperfed.results.summary import Summary
from tests.support.terminal import products, write

QUICK = {"rounds": 2, "steps": 3, "partition": "iid", "device": "cpu", "workers": 1}


@pytest.fixture(scope="module")
def group() -> Iterator[RankGroup]:
    """Return two ranks, which live as long as the tests of this file."""
    yield ranks.start_ranks(2)
    ranks.stop_ranks()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write(tmp_path_factory.mktemp("data") / "mine.npz"))


def config(data: str, method: str, seed: int, **more: object) -> Config:
    return resolve(words={"method": method, "data": data, "seed": seed, **QUICK, **more})


def made(configs: Sequence[Sequence[Config]], folder: Path, jobs: int = 0) -> None:
    with ParallelRuns(jobs) as processes:
        told = list(processes.outcomes(configs, folder, Watch))
        assert isinstance(processes.pool, RankPool if jobs != 1 else type(None))
    for of_seed, outcomes in zip(configs, told, strict=True):
        for one, summary in zip(of_seed, outcomes, strict=True):
            assert isinstance(summary, Summary)
            assert (summary.seed, summary.title) == (one.run.seed, one.run.title)


def by_settings(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what all runs below a folder give back, by their settings."""
    return {path.read_text(): products(path.parent) for path in folder.rglob("config.toml")}


@pytest.mark.parametrize("seeds", [(0, 1), (0,)], ids=["a seed at each rank", "a seed divided"])
def test_runs_at_the_ranks_are_those_of_one_process(
    group: RankGroup, data: str, seeds: Sequence[int], tmp_path: Path, no_page: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = [[config(data, method, seed) for method in ("cc", "rc")] for seed in seeds]
    assert paying(configs[0][0]) == 2
    made(configs, tmp_path / "apart")
    monkeypatch.setattr(ranks, "_joined", None)
    made(configs, tmp_path / "alone", jobs=1)
    apart = by_settings(tmp_path / "apart")
    assert len(apart) == 2 * len(seeds)
    assert apart == by_settings(tmp_path / "alone")


@pytest.mark.parametrize(("jobs", "ranks", "most"), [(0, 3, 3), (2, 3, 2), (9, 3, 3), (1, 3, 1), (0, 1, 1), (3, 1, 3)])
def test_runs_of_few_seeds_are_divided_and_told_in_order(
    jobs: int, ranks: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def each(self: ParallelRuns, work: Any, runs: Sequence[Any], *rest: Any) -> Iterator[Any]:
        seen[:] = map(len, runs)
        yield from runs

    monkeypatch.setattr(parallel, "ranks_of", lambda hardware: ranks)
    monkeypatch.setattr(parallel, "over_ranks", lambda hardware: ranks > 1)
    monkeypatch.setattr(ParallelRuns, "each", each)
    configs = [[config("digits", "cc", seed, kind="auto", lr=0.1 * k) for k in (1, 2, 3, 4)] for seed in range(4)]
    told = [list(ParallelRuns(jobs).outcomes(configs[:n], tmp_path, Watch)) for n in (1, 4)]
    assert told == [configs[:1], configs]
    assert sum(seen) == 16
    assert len(seen) == 4
    list(ParallelRuns(jobs).outcomes(configs[:1], tmp_path, Watch))
    assert len(seen) == most


def test_one_job_spreads_every_run_over_the_ranks(group: RankGroup, data: str, tmp_path: Path, no_page: None) -> None:
    made([[config(data, "cc", 0)], [config(data, "cc", 1)]], tmp_path, jobs=1)
    logs = [path.read_text() for path in tmp_path.glob("*/log.txt")]
    assert len(logs) == 2
    assert all("2 ranks hold" in log for log in logs)


def test_an_error_at_a_rank_is_that_of_the_run(group: RankGroup, data: str, tmp_path: Path, no_page: None) -> None:
    wrong = [[config(str(tmp_path / "nothing.npz"), "cc", seed)] for seed in (0, 1, 2)]
    with pytest.raises((DataError, UsageError), match=r"nothing\.npz"), ParallelRuns(0) as processes:
        list(processes.outcomes(wrong, tmp_path / "runs", Watch))


def blocks_interrupts(process: Any) -> bool:
    """Return whether Ctrl-C, which a terminal sends to all processes, does not reach one."""
    (mask,) = re.findall(r"SigBlk:\s+(\w+)", Path(f"/proc/{process.pid}/status").read_text())
    return bool(int(mask, 16) >> (signal.SIGINT - 1) & 1)


def test_runs_at_all_ranks_stop_after_a_round_and_go_on_later(
    group: RankGroup, data: str, tmp_path: Path, no_page: None
) -> None:
    configs = [[config(data, "cc", seed, rounds=4000)] for seed in (0, 1)]

    def both_have_begun() -> bool:
        assert all(map(blocks_interrupts, multiprocessing.active_children()))
        return len(list(tmp_path.glob("*/metrics.jsonl"))) == 2

    with pytest.raises(Interrupted) as caught, ParallelRuns(0) as processes:
        list(processes.outcomes(configs, tmp_path, lambda: Watch(stop=both_have_begun)))
    assert str(caught.value).count("imperfed resume") == 2
    left = [RunFolder(path.parent) for path in tmp_path.glob("*/config.toml")]
    assert len(left) == 2
    assert all(run.checkpoint.exists() and run.summary() is None for run in left)


def test_a_rank_calls_no_other_function() -> None:
    with pytest.raises(UsageError, match="no rank calls 'os:system'"):
        Named("os:system").function()
    assert Named("imperfed.experiments.parallel:aside").function() is parallel.aside


def test_ranks_call_whatever_makes_runs_side_by_side() -> None:
    functions = (parallel.aside, parallel.of_one_seed, trials_of, training.aside, tuning.aside)
    assert {import_path(function) for function in functions} == CALLED


def test_the_connections_between_ranks_are_watched(group: RankGroup) -> None:
    found = []
    for number in open_sockets().values():
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as one:
            one.getpeername()
            found.append(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
    assert found.count(1000 * GONE) >= 2  # to the store, and to the other rank


def test_ranks_that_are_started_here_listen_to_this_machine_alone(group: RankGroup) -> None:
    listening = []
    for number in open_sockets().values():
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as one:
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and one.family != socket.AF_UNIX:
                listening.append(one.getsockname()[0])
    assert set(listening) == {"127.0.0.1"}


def test_a_folder_that_a_rank_does_not_see_is_named(tmp_path: Path) -> None:
    work = Work(Named("imperfed.experiments.parallel:aside"), (), str(tmp_path / "far"), "stop")
    said = work.carry_out(RankGroup(3, 4))
    assert said.kind == "UsageError"
    assert "rank 3 does not see" in said.message
    assert "--jobs 1" in said.message


def test_a_note_reaches_all_ranks(group: RankGroup) -> None:
    flag = Flag(group, "a word of this test")
    assert not flag.is_set()
    group.note(flag.name)
    assert flag.is_set()


def test_the_process_of_rank_0_that_is_killed_ends_all(
    group: RankGroup, data: str, tmp_path: Path, no_page: None
) -> None:
    with pytest.raises(ImperfedError, match=r"killed while.*the same command goes on"), ParallelRuns(1) as processes:
        processes.begun(1, os._exit, [(9,)], config(data, "cc", 0), tmp_path)[0].result()
