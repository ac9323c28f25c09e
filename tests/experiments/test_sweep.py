"""A sweep: chosen by rows held out, tested once, and the same after it was interrupted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from imperfed.cli.typed_words import configs
from imperfed.core.errors import DataError, UsageError
from imperfed.experiments.parallel import ParallelRuns
from imperfed.experiments.sweep.sweep_grid import cells_of, configs_of, grid_of, named
from imperfed.experiments.sweep.sweep_run import TriedCell, chosen, groups, sweep
from imperfed.experiments.sweep.sweep_trial import SweepScore
from imperfed.experiments.watch import Interrupted, Watch
from imperfed.report.sweep_page import best_first
from tests.support.terminal import FLIP, done, imperfed, records, summary, write

WORDS = ("--set", "steps=5", "--set", "partition=iid", "--workers", "1", *FLIP)
GRID, SEEDS = {"lr": ("0.001", "0.1"), "momentum": ("0", "0.9")}, (3, 5)
VARYING = ("seconds",)


@pytest.fixture(autouse=True)
def quick(no_page: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imperfed.experiments.sweep.sweep_run.write_sweep_page", lambda folder: None)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data") / "mine.npz")


def begin(out: Path, data: Path, trials: int = 1000) -> Path:
    """A sweep that is interrupted in the first round after so many trials have begun."""
    begun: list[str] = []
    watch = Watch(search=lambda doing, share: begun.append(doing), stop=lambda: len(begun) > trials)
    words = {"data": str(data), "rounds": "3", "steps": "5", "partition": "iid", "workers": "1"}
    make = configs(words | {"labels.candidates": "flip", "checkpoint_every": "1"})
    with ParallelRuns(1) as processes:
        return sweep(
            "cc", GRID, SEEDS, lambda cell, seed: make(f"cc {named(cell)}", seed), out, lambda: watch, processes
        )[0]


def results(folder: Path) -> dict[str, Any]:
    """The results without what differs from one time to the next."""
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    for cell in found["cells"]:
        for trial in cell["trials"]:
            del trial["seconds"]
    return found


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("experiment.write_report", "sweep.sweep_run.write_sweep_page"):
            patch.setattr(f"imperfed.experiments.{name}", lambda folder: None)
        return begin(tmp_path_factory.mktemp("whole"), data)


def test_the_highest_mean_on_rows_held_out_is_chosen(whole: Path) -> None:
    found = results(whole)
    means = [cell["mean"] for cell in found["cells"]]
    assert len(means) == 4
    assert found["chosen"]["settings"] == found["cells"][means.index(max(means))]["settings"]
    assert found["chosen"]["settings"] != found["cells"][0]["settings"]
    for cell in found["cells"]:
        assert cell["mean"] == pytest.approx(sum(trial["score"] for trial in cell["trials"]) / 2)
        assert [trial["seed"] for trial in cell["trials"]] == list(SEEDS)


def test_only_the_chosen_settings_are_tested(whole: Path) -> None:
    trials = [path.parent for path in (whole / "trials").glob("*/score.json")]
    assert len(trials) == 8
    for trial in trials:
        assert {r["metric"].split("/")[0] for r in records(trial)} >= {"train", "validation"}
        assert not any(r["metric"].startswith("test/") for r in records(trial))
        assert not (trial / "checkpoints").exists()
    runs = json.loads((whole / "runs.json").read_text())
    assert [run["seed"] for run in runs] == list(SEEDS)
    assert results(whole)["chosen"]["values"] == [summary(whole / r["folder"])["personal"]["mean"] for r in runs]


def test_the_chosen_runs_are_the_trials_that_were_judged(whole: Path) -> None:
    found = results(whole)
    trials = next(c for c in found["cells"] if c["settings"] == found["chosen"]["settings"])["trials"]
    for trial, run in zip(trials, json.loads((whole / "runs.json").read_text()), strict=True):
        judged = summary(whole / run["folder"])["validation"]
        assert (judged["score"], judged["round"]) == (trial["score"], trial["round"])


@pytest.mark.parametrize("trials", [1, 6])
def test_it_ends_as_if_it_had_not_been_interrupted(trials: int, whole: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match="continue with: imperfed resume"):
        begin(tmp_path, data, trials)
    (cut,) = tmp_path.iterdir()
    before = {path: path.stat().st_mtime_ns for path in cut.glob("trials/*/score.json")}
    assert 0 < len(before) < 8
    said = done("resume", cut)
    assert "chosen: " in said.out
    assert results(cut) == results(whole)
    assert before.items() <= {path: path.stat().st_mtime_ns for path in cut.glob("trials/*/score.json")}.items()


def test_trials_side_by_side_choose_the_same(whole: Path, data: Path, tmp_path: Path) -> None:
    grid = [f"{key}={','.join(values)}" for key, values in GRID.items()]
    words = ("--data", data, "--rounds", 3, *WORDS, "--set", "checkpoint_every=1", "--seeds", "3,5", "--out", tmp_path)
    said = imperfed("sweep", "cc", *grid, *words, "--jobs", 2, "--json")
    assert said.code == 0, said.err
    (folder,) = tmp_path.iterdir()
    assert results(folder) == results(whole)
    assert json.loads(said.out)["chosen"]["settings"] == results(whole)["chosen"]["settings"]


def test_trials_are_dealt_to_processes_by_seed() -> None:
    grid: list[list[Any]] = [["a0", "a1"], ["b0", "b1"], ["c0", "c1"]]
    assert groups(grid, 1) == [["a0", "b0", "c0"], ["a1", "b1", "c1"]]
    assert groups(grid, 4) == [["a0", "c0"], ["b0"], ["a1", "c1"], ["b1"]]


def tried(*scores: float | None) -> TriedCell:
    return TriedCell({}, {s: SweepScore(score, 1, 1, 0.0, 0, ()) for s, score in enumerate(scores)})


def test_what_failed_with_any_seed_is_not_chosen_and_the_first_of_equals_is() -> None:
    assert chosen([tried(0.5, 0.5), tried(None, 0.9), tried(0.6, 0.4)]) == 0
    with pytest.raises(DataError, match="no combination has a score"):
        chosen([tried(None, 0.5)])


def test_what_failed_comes_after_any_score() -> None:
    """Scores that are corrected for chance can be far below 0."""
    assert [cell["mean"] for cell in best_first([{"mean": None}, {"mean": -3.0}, {"mean": 0.5}])] == [0.5, -3.0, None]


def test_lists_are_separated_by_semicolons() -> None:
    grid = grid_of(["hidden=64,32;16", "lr=0.1, 0.2"])
    assert grid == {"hidden": ("64,32", "16"), "lr": ("0.1", "0.2")}
    assert [named(cell) for cell in cells_of(grid)][:2] == ["hidden=64,32 lr=0.1", "hidden=64,32 lr=0.2"]


def test_a_sweep_of_which_no_trial_could_begin_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "federation").mkdir()
    said = imperfed(
        "sweep", "cc", "lr=0.1,0.2", "--data", tmp_path / "federation", "--out", tmp_path / "out" / "sweeps"
    )
    assert said.code == 2
    assert "`imperfed inspect" in said.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lr"], "KEY=VALUE"),
        (["lr="], "KEY=VALUE"),
        (["lr=1,1"], "a value is named twice"),
        (["lr=1", "lr=2"], "lr is named twice"),
        (["lr =1", "lr=2"], "lr is named twice"),
        (["=1"], "KEY=VALUE"),
        ([], "name at least one setting"),
    ],
)
def test_a_grid_that_is_none_is_refused(words: Sequence[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        grid_of(words)


def test_settings_that_change_the_rows_held_out_are_refused() -> None:
    make = configs({"data": "digits"})
    for key, values in (("sites", ("2", "4")), ("validation", ("0.1", "0.2")), ("repair", ("posterior", ""))):
        with pytest.raises(UsageError, match="changes the data or their labels"):
            configs_of([{key: value} for value in values], [0], lambda cell, seed: make(f"cc {named(cell)}", seed))
    with pytest.raises(UsageError, match="no site holds rows out"):
        configs_of([{"partition": "label"}], [0], lambda cell, seed: make(f"cc {named(cell)}", seed))
