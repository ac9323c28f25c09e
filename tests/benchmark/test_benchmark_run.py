"""A benchmark is tuned alike on rows held out, and continued wherever it was cut off."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from imperfed.benchmark import training
from imperfed.benchmark.benchmark_run import Benchmark
from imperfed.benchmark.kinds import kind_of
from imperfed.benchmark.records import RUN, BenchmarkRecord, BenchmarkRecords, digest, source_of
from imperfed.benchmark.training import Training
from imperfed.cli.typed_words import configs
from imperfed.core.errors import DataError, DivergedError, UsageError
from imperfed.data.federate import FederatedData
from imperfed.data.oracle import Oracle
from imperfed.engine.backends.distributed.packing import packed, unpacked
from imperfed.experiments import experiment as experiments
from imperfed.experiments.config import Config
from imperfed.experiments.parallel import ParallelRuns
from imperfed.experiments.resolving import resolve
from imperfed.experiments.tuning import Tuning, judged
from imperfed.experiments.watch import Interrupted, Watch

KIND = kind_of("candidates")
GOOD = 0.03
"""The learning rate that rows held out prefer here; test rows prefer the smallest."""


@dataclass
class Trained:
    """Stands in for all training: what was asked for, in order."""

    asked: list[tuple[str, float, Any, int | None]] = field(default_factory=list)
    """Method, learning rate, mu, and the seed of a run."""
    fail: Callable[[Config], Exception | None] = lambda config: None

    def judged(self, config: Config, tuning: Tuning) -> float | None:
        self.asked.append((config.run.title, config.local.lr, config.flat().get("method.mu"), None))
        if error := self.fail(config):
            raise error
        return 0.0 if config.local.lr == GOOD else -abs(config.local.lr - GOOD)

    def measured(self, training: Training, watch: Watch) -> tuple[float, dict[str, float | None]]:
        config = training.config
        self.asked.append((config.run.title, config.local.lr, config.flat().get("method.mu"), config.run.seed))
        if error := self.fail(config):
            raise error
        return 1.0, {"mean": 1 - config.local.lr + 0.01 * config.run.seed}


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Trained:
    made = Trained()
    monkeypatch.setattr(training, "judged", made.judged)
    monkeypatch.setattr(training, "_measured", made.measured)
    return made


def bench(folder: Path, methods: str = "cc, fedprox+cc", **changed: Any) -> Benchmark:
    """A benchmark on digits, which goes on from the file in its folder."""
    made = Benchmark(
        KIND,
        [KIND.dataset("digits")],
        [name.strip() for name in methods.split(",")],
        [0, 1],
        {},
        configs,
        Tuning(6),
        folder,
        lambda dataset: dataset.data,
        BenchmarkRecords.read(folder / "results.jsonl"),
    )
    return replace(made, **changed)


def test_settings_are_chosen_by_rows_held_out_and_all_methods_have_as_many_trials(
    trained: Trained, tmp_path: Path
) -> None:
    said: list[str] = []
    made = bench(tmp_path, log=said.append)
    made.carry_out(1, Watch)
    for title in ("cc", "fedprox+cc"):
        own = [(lr, seed) for name, lr, _, seed in trained.asked if name == title]
        assert [seed for _, seed in own] == [None] * 6 + [0, 1]
        assert {lr for lr, seed in own if seed is not None} == {GOOD}  # though test rows prefer the smallest rate
        assert min(lr for lr, _ in own) < GOOD
    (runs,) = made.runs().values()
    assert [(run.seed, run.figures["mean"]) for run in runs["cc"]] == [(0, 0.97), (1, 0.98)]
    assert runs["fedprox+cc"][0].settings["local.lr"] == GOOD
    assert "method.mu" in runs["fedprox+cc"][0].settings
    assert said[0].startswith("1 of 16: digits, cc, trial 1: -0.020 on rows held out; about ")
    assert said[-1] == "16 of 16: digits, fedprox+cc, seed 1: 0.980 on test rows; about 0 min left"


@pytest.mark.parametrize("after", [0, 1, 5, 7, 13, 15])
def test_one_that_was_cut_off_does_only_what_is_missing(trained: Trained, tmp_path: Path, after: int) -> None:
    with pytest.raises(Interrupted, match="the same command goes on where it was, in"):
        bench(tmp_path).carry_out(1, lambda: Watch(stop=lambda: len(trained.asked) >= after))
    assert len(trained.asked) == after
    bench(tmp_path).carry_out(1, Watch)
    assert len(trained.asked) == len(set(trained.asked)) == 16
    bench(tmp_path).carry_out(1, Watch)
    assert len(trained.asked) == 16


def test_a_line_that_was_cut_short_is_made_again_and_no_other(trained: Trained, tmp_path: Path) -> None:
    bench(tmp_path).carry_out(1, Watch)
    path = tmp_path / "results.jsonl"
    path.write_text(path.read_text()[:-20])
    bench(tmp_path).carry_out(1, Watch)
    assert len(trained.asked) == 17
    assert len(BenchmarkRecords.read(path).known) == 16
    assert len(path.read_text().splitlines()) == 17  # the half of a line stays, and is read by nobody


def test_other_settings_or_another_budget_are_another_benchmark(trained: Trained, tmp_path: Path) -> None:
    bench(tmp_path).carry_out(1, Watch)
    bench(tmp_path, seeds=[0, 1, 2]).carry_out(1, Watch)
    assert [seed for *_, seed in trained.asked[16:]] == [2, 2]  # chosen already
    bench(tmp_path, tuning=Tuning(2)).carry_out(1, Watch)
    assert len(trained.asked) == 18 + 8
    bench(tmp_path, words={"rounds.rounds": 3}).carry_out(1, Watch)
    assert len(trained.asked) == 26 + 16
    bench(tmp_path, words={"device": "cpu"}).carry_out(1, Watch)
    assert len(trained.asked) == 42


def test_what_does_not_fit_or_diverges_is_said_and_the_others_go_on(trained: Trained, tmp_path: Path) -> None:
    def fail(config: Config) -> Exception | None:
        if config.run.method == "fedprox":
            return DataError("not for these rows")
        return DivergedError("too far") if config.local.lr == GOOD else None

    trained.fail = fail
    made = bench(tmp_path)
    made.carry_out(1, Watch)
    (runs,) = made.runs().values()
    assert [(run.failed, run.diverged) for run in runs["fedprox+cc"]] == [("not for these rows", False)] * 2
    assert [run.settings["local.lr"] for run in runs["cc"]] == [0.01, 0.01]  # the best of those that did not diverge
    before = len(trained.asked)
    bench(tmp_path).carry_out(1, Watch)
    assert len(trained.asked) == before


def test_methods_are_refused_before_anything_is_trained(trained: Trained, tmp_path: Path) -> None:
    for methods, part in (("cc, cc", "named more than once: cc"), ("cc, cd", "unknown algorithm 'cd'")):
        with pytest.raises(UsageError, match=part):
            bench(tmp_path, methods).carry_out(1, Watch)
    assert trained.asked == []


def test_processes_side_by_side_give_the_same_records(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def begun(self: Any, jobs: int, work: Callable[..., Any], calls: Any, like: Any, folder: Path) -> list[Future[Any]]:
        """Stand in for processes, which take seconds to start: what they are sent is pickled."""
        asked.append((jobs, len(calls)))
        futures: list[Future[Any]] = [Future() for _ in calls]
        for future, call in zip(futures, calls, strict=True):
            assert unpacked(packed(call)) == call  # as it goes to another rank
            future.set_result(training.carried_out(*pickle.loads(pickle.dumps(call)), Watch))
            assert unpacked(packed(future.result())) == future.result()
        return futures

    bench(tmp_path / "alone").carry_out(1, Watch)
    monkeypatch.setattr(ParallelRuns, "begun", begun)
    bench(tmp_path / "beside").carry_out(10, Watch)
    assert asked == [(10, 12), (10, 4)]  # those that are started for four trainings may get more afterwards
    one, other = (BenchmarkRecords.read(tmp_path / name / "results.jsonl") for name in ("alone", "beside"))
    assert {key: replace(r, seconds=0.0) for key, r in one.known.items()} == {
        key: replace(r, seconds=0.0) for key, r in other.known.items()
    }


def test_test_rows_do_not_judge_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"data": "digits", "labels.candidates": "flip", "partition": "iid", "rounds": 2, "steps": 5, "workers": 1}
    config = configs(words)("cc lr=0.3", 0)
    score, load = judged(config, Tuning()), experiments.load_data

    def with_wrong_tests(config: Config) -> FederatedData:
        data = load(config)
        oracle: Oracle = data.oracle
        return replace(data, oracle=replace(oracle, test_y=tuple(9 - y for y in oracle.test_y)))

    monkeypatch.setattr(experiments, "load_data", with_wrong_tests)
    assert judged(config, Tuning()) == score


def test_a_record_is_what_it_was_after_it_is_read_again(tmp_path: Path) -> None:
    records = BenchmarkRecords(path=tmp_path / "new" / "r.jsonl")
    zero = BenchmarkRecord("a", "m", "d", 0, 0, {"lr": 0.0}, score=0.0)
    none = BenchmarkRecord("a", "m", "d", 0, 1, {"lr": 1.0}, score=None, failed="no", diverged=True)
    run = BenchmarkRecord(
        "a", "m", "d", 0, figures={"mean": 0.0, "worst": None}, seconds=1.5, version="1", device="cpu"
    )
    for record in (zero, none, run):
        records.add(record)
    again = BenchmarkRecords.read(tmp_path / "new" / "r.jsonl")
    assert again.known == records.known
    assert again.runs("a", "m", "d") == [run]
    assert run.trial == RUN
    assert again.trials("a", "m", "d") == [zero, none]
    assert "trial" not in json.loads(run.line())


def test_an_edited_method_of_ones_own_is_trained_again(tmp_path: Path) -> None:
    own = resolve(words={"method": "tests.support.own_parts:HalfWay", "data": "digits"})
    assert "class HalfWay" in source_of(own)
    assert source_of(resolve(words={"method": "fedprox", "data": "digits"})) == ""
    digits = KIND.dataset("digits")
    made = {digest(KIND, digits, Tuning(), source=source) for source in ("", "one", "other")}
    assert len(made) == 3
    assert digest(KIND, digits, Tuning(), {"workers": 3}) == digest(KIND, digits, Tuning())
    assert digest(KIND, digits, Tuning(seed=1)) != digest(KIND, digits, Tuning())
