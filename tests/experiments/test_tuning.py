"""Methods of a comparison are tuned alike: equally many trials, judged by rows held out."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imperfed.algorithms import catalogue
from imperfed.cli.typed_words import configs
from imperfed.core.errors import DataError
from imperfed.core.labels.validity import Validity
from imperfed.engine.backends.distributed.packing import packed, unpacked
from imperfed.engine.schedule import RoundReport
from imperfed.experiments import study as studies_of
from imperfed.experiments import tuning
from imperfed.experiments.config import Config
from imperfed.experiments.parallel import ParallelRuns, of_one_seed
from imperfed.experiments.reproduction.study_cells import StudyCell, StudyCells, digest
from imperfed.experiments.reproduction.study_table import markdown
from imperfed.experiments.resolving import resolve
from imperfed.experiments.setting_sections import options
from imperfed.experiments.study import Study, StudyColumn, StudyRow, studies
from imperfed.experiments.tuning import Choices, Tuning, attempts, judged, own_setting, scored
from imperfed.experiments.watch import Interrupted, Watch
from tests.support.terminal import TINY, done

WORDS = {"data": "digits", "labels.candidates": "flip", "partition": "iid", "rounds": 2, "steps": 5, "workers": 1}


@pytest.mark.parametrize("name", ["laar", "fedprox+cc", "abs-gce", "fedavg+cc", "fedalc", "pfedpll", "pfedmo"])
def test_every_method_gets_as_many_trials_and_the_first_is_as_it_is_written(name: str) -> None:
    config = resolve(words={"method": name, "data": "digits"})
    for trials in (9, 7, 1):
        found = attempts(config, Tuning(trials))
        assert len(found) == trials
        assert len({json.dumps(one) for one in found}) == trials
        assert all(config.flat()[key] == value for key, value in found[0].items())


def test_what_is_tried_is_the_learning_rate_and_one_setting_of_its_own() -> None:
    laar = attempts(resolve(words={"method": "laar", "data": "digits"}), Tuning())
    assert {one["method.lambda_ga"] for one in laar} == {1.0, 0.1, 0.01}
    assert {one["local.lr"] for one in laar} == {0.01, 0.03, 0.00333}
    plain = attempts(resolve(words={"method": "fedavg+cc", "data": "digits"}), Tuning())
    assert sorted(one["local.lr"] for one in plain) == pytest.approx(
        [0.000333, 0.001, 0.002, 0.00333, 0.01, 0.03, 0.05, 0.1, 0.3]
    )
    assert own_setting(resolve(words={"method": "fedprox+lw", "data": "digits"}))[0] == "method.mu"
    assert own_setting(resolve(words={"method": "fedavg+lw", "data": "digits"}))[0] == "objective.beta"
    aws = resolve(words={"method": "fedalc", "data": "bibtex"})
    assert next(iter(attempts(aws, Tuning())[0])) == "method.lr_theta"


def test_a_setting_that_is_written_is_tried_too() -> None:
    config = resolve(words={"method": "fedprox", "mu": 0.5, "data": "digits"})
    assert own_setting(config) == ("method.mu", (0.5, 0.01, 0.1, 1.0))
    assert len(attempts(config, Tuning())) == 9


def test_what_classes_declare_are_settings_that_they_have() -> None:
    for name, method in catalogue().items():
        known = options(method)
        assert set(method.tuned) <= set(known), name
        assert len(method.tuned) <= 1, name
        for value in next(iter(method.tuned.values()), ()):
            method(**{next(iter(method.tuned)): value})


def test_the_best_trial_is_chosen_and_none_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[float, float]] = []

    def score(config: Config, how: Tuning) -> float | None:
        lr, mu = config.local.lr, config.flat()["method.mu"]
        tried.append((lr, mu))  # type: ignore[arg-type]
        return None if lr == 0.01 else -abs(lr - 0.03) + (0.1 if mu == 0.1 else 0.0)

    monkeypatch.setattr(tuning, "judged", score)
    make = configs(WORDS)

    def chosen(how: Tuning, watch: Watch) -> dict[str, dict[str, Any]]:
        choices = Choices(tmp_path / "t.json", how)
        trials = list(choices.trials({"prox": "fedprox+cc"}, make))
        missing = choices.missing(trials)
        for place, found in scored(missing, how, ParallelRuns(1), tmp_path, watch):
            choices.keep(missing[place], found)
        return choices.best(trials)

    stops, said = iter([False] * 4 + [True]), []
    with pytest.raises(Interrupted, match="interrupted while tuning prox"):
        chosen(Tuning(6), Watch(stop=lambda: next(stops), search=lambda *told: said.append(told)))
    assert len(tried) == 4
    assert said[3] == ("tuning prox, trial 4 of 6", 0.5)
    assert chosen(Tuning(6), Watch()) == {"prox": {"local.lr": 0.03, "method.mu": 0.1}}
    assert len(tried) == len(set(tried)) == 6
    chosen(Tuning(6, held_out=0.1), Watch())
    assert len(tried) == 12  # other rows held out, other scores
    (tmp_path / "t.json").write_text("{")
    with pytest.raises(DataError, match=r"t\.json: cut short or damaged"):
        chosen(Tuning(6), Watch())


def test_equal_trials_of_two_rows_are_made_once(tmp_path: Path) -> None:
    choices = Choices(tmp_path / "t.json", Tuning(3))
    trials = list(choices.trials({"one": "cc", "other": "cc"}, configs(WORDS)))
    assert len(trials) == 6
    missing = choices.missing(trials)
    assert len(missing) == 3
    for number, trial in enumerate(missing):
        choices.keep(trial, float(number))
    assert choices.best(trials) == {"one": {"local.lr": 0.00333}, "other": {"local.lr": 0.00333}}


def test_a_trial_is_judged_by_the_rows_held_out() -> None:
    config = configs(WORDS)("cc lr=0.3", 0)
    score = judged(config, Tuning())
    assert score is not None
    assert 0.2 < score < 1
    assert judged(config, Tuning(held_out=0.4)) != score  # on other rows
    assert judged(configs(WORDS)("cc lr=1e30", 0), Tuning()) is None


def test_with_one_label_per_site_examples_that_are_set_aside_judge_a_trial() -> None:
    """No site holds any of them."""
    report = RoundReport(0, (), {}, {}, common={"validation p@1": (0.4, 10), "p@1": (0.9, 10)})
    assert list(tuning._scores(report, "p@1")) == [0.4]
    assert list(tuning._scores(replace(report, validation=Validity(0.7, 5.0)), "p@1")) == [0.7]
    assert list(tuning._scores(replace(report, common={}), "p@1")) == []


FILE = """
title = "Toy"
place = "nowhere"

[settings]
data = "digits"
labels.candidates = "flip"

[[rows]]
method = "cc"

[columns.digits]
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[object, ...]]:
    """The words that make a table of one method without reports; a trial is as good as its learning rate is large."""
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)
    monkeypatch.setattr(tuning, "judged", lambda config, how: config.local.lr)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/table-1.toml").write_text(FILE)
    monkeypatch.setattr(studies_of, "FOLDER", tmp_path)
    studies.cache_clear()
    yield "reproduce", "toy/table-1", *TINY, "--seeds", "0", "--out", tmp_path / "out"
    studies.cache_clear()


def test_a_table_has_both_as_published_and_tuned_alike(toy: tuple[object, ...], tmp_path: Path) -> None:
    done(*toy)
    said = done(*toy, "--tuned")
    cells: list[dict[str, Any]] = json.loads((tmp_path / "out/reproduce/toy/table-1/results.json").read_text())["cells"]
    assert [cell.get("tuned") for cell in cells] == [None, {"local.lr": 0.3}]
    assert cells[0]["figures"] != cells[1]["figures"]
    assert "| method | mean over sites, % | mean over sites, %, tuned alike |" in said.out
    assert "Tuned alike: cc on digits with local.lr 0.3." in said.out


def test_a_table_that_was_tuned_alone_is_shown(toy: tuple[object, ...], tmp_path: Path) -> None:
    said = done(*toy, "--tuned")
    table = (tmp_path / "out/reproduce/toy/table-1/table.md").read_text()
    for text in (said.out, table):
        assert "Not run yet" not in text
        assert "| method | mean over sites, %, tuned alike |" in text
        assert "Toy. Seed 0. Tuned alike: cc on digits with local.lr 0.3." in text
    both = done(*toy, "--seeds", "1")
    assert "Seeds 0, 1" in both.out


def test_settings_that_are_words_stand_below_the_table() -> None:
    study = Study("toy", {}, (StudyRow("flag", "flag"),), (StudyColumn("bibtex"),), title="Toy")
    made = digest(study, study.rows[0], study.columns[0])
    chosen = {"method.adapt": "both", "method.lr": 0.30000001, "method.k": 3}
    cell = StudyCell("flag", "bibtex", 0, made, {"mean": 0.5}, tuned=chosen)
    text = markdown(study, StudyCells("toy").with_all([cell]), study.columns)
    assert "Tuned alike: flag on bibtex with method.adapt both, method.lr 0.3, method.k 3." in text


def test_trials_of_all_columns_are_made_side_by_side_as_the_runs_are(
    toy: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that end in another order than they began change no choice."""
    path = tmp_path / "toy/table-1.toml"
    path.write_text(FILE + '\n[columns.again]\nsettings = { "local.steps" = 3 }\n')
    submitted: list[tuple[int, int]] = []

    def ended(
        self: ParallelRuns, jobs: int, work: Callable[..., Any], calls: Sequence[Any], like: Config, *rest: object
    ) -> Iterator[tuple[int, Any]]:
        submitted.append((jobs, len(calls)))
        assert all(unpacked(packed(call)) == call for call in calls)  # as they go to other ranks
        yield from reversed([(place, work(*pickle.loads(pickle.dumps(call)))) for place, call in enumerate(calls)])

    monkeypatch.setattr(ParallelRuns, "as_they_end", ended)
    monkeypatch.setattr(ParallelRuns, "outcomes", lambda self, groups, *rest: (of_one_seed(g, *rest) for g in groups))
    monkeypatch.setattr(tuning, "stop_is_wanted", lambda: False)
    monkeypatch.setattr(
        ParallelRuns, "each", lambda self, work, configs, *rest: (work(runs, *rest) for runs in configs)
    )
    said = done(*toy, "--tuned", "--jobs", "2")
    assert submitted == [(2, 18)]
    assert "cc on digits with local.lr 0.3; cc on again with local.lr 0.3." in said.out
    assert "tuning cc, trial 9 of 9" in said.out


def test_what_processes_return_comes_as_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    late, soon = Future[str](), Future[str]()
    soon.set_result("soon")
    monkeypatch.setattr(ParallelRuns, "begun", lambda *words: [late, soon])
    stops = iter([False, True])
    found = ParallelRuns(2).as_they_end(2, str, [(0,), (1,)], resolve(words=WORDS), Path(), lambda: next(stops))
    assert next(found) == (1, "soon")
    late.set_result("late")
    assert next(found) == (0, "late")
    with pytest.raises(Interrupted):
        next(found)
