"""The best round by held-out rows: found, kept, resumed to the bit, and the end of a run that gains nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import DataError, UsageError
from imperfed.core.labels import Exact, Validity
from imperfed.core.labels.validity import UNKNOWN
from imperfed.data.federate import FederatedData
from imperfed.data.held_out import hold_out
from imperfed.data.scale import Scale
from imperfed.engine.best_round import BestRound
from imperfed.testing.toy import Plain, Watched, differences, engine, everything, one_by_one, step_by_step, world

WHOLE = hold_out(FederatedData(*world(Exact), {}, Scale.none()), 0.25, data_seed=0)
SCENE = (WHOLE.federation, WHOLE.oracle)
RISING_THEN_FALLING = (0.2, 0.5, 0.4, 0.6, 0.6, 0.5, 0.3, 0.9)


def course(scores: Sequence[float | None], **settings: Any) -> Watched:
    """An engine whose sites report these scores, round by round."""
    e = engine(Algorithm(), Plain(), SCENE, **{"rounds": len(scores), "participation": 0.5} | settings)

    def validate(sites: Sequence[int] | None = None) -> dict[int, Validity]:
        score = scores[e.state.round - 1]
        return {k: UNKNOWN if score is None else Validity(score, 1.0 + k) for k in range(4)}

    e.backend.validate = validate  # type: ignore[method-assign]
    return e


def test_the_score_is_the_agreement_of_each_sites_model_with_its_own_held_out_rows() -> None:
    e = engine(Algorithm(), Plain(), SCENE, rounds=1).go()
    held, report = SCENE[0].validation, e.reports[0]
    assert held is not None
    for k in range(4):
        x, labels = held.at(k)
        predicted = e.population.predictor(k)(x).argmax(1)
        assert report.validity[k] == (float((predicted == labels.values).double().mean()), len(x))
    total = sum(score * weight for score, weight in report.validity.values())
    assert report.validation == pytest.approx((total / 22, 22.0))
    assert report.sent["validation"] == (2,)


@pytest.mark.parametrize("make_backend", [one_by_one, step_by_step])
def test_all_backends_judge_alike(make_backend: Any) -> None:
    usual = engine(Algorithm(), Plain(), SCENE, rounds=2).go()
    other = engine(Algorithm(), Plain(), SCENE, rounds=2, make_backend=make_backend).go()
    for mine, theirs in zip(usual.reports, other.reports, strict=True):
        assert mine.validity.keys() == theirs.validity.keys()
        assert mine.validation == pytest.approx(theirs.validation)


def test_the_best_round_is_the_first_of_equals_and_is_returned_to() -> None:
    e = course(RISING_THEN_FALLING[:7]).go()
    assert [report.best for report in e.reports] == [1, 2, 2, 4, 4, 4, 4]
    last = everything(e)
    assert e.return_to_best() == 4
    assert e.state.round == 7
    assert e.figures is None  # those of the last round must not be taken for those of the best one
    four = course(RISING_THEN_FALLING[:4]).go()
    assert not differences(everything(e), everything(four))
    assert differences(everything(e), last)
    assert e.evaluate() == four.evaluate()


def test_nothing_is_copied_where_the_last_round_is_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    e = course((0.1, 0.2)).go()
    figures = e.figures
    assert e.return_to_best() == 2
    assert e.figures is figures


def test_a_run_ends_when_it_has_not_gained_for_long_enough() -> None:
    assert len(course(RISING_THEN_FALLING, patience=3).go().reports) == 7
    assert len(course(RISING_THEN_FALLING, patience=4).go().reports) == 8
    assert len(course(RISING_THEN_FALLING).go().reports) == 8


def test_only_evaluated_rounds_count() -> None:
    e = course((0.1, 0.5, 0.9, 0.4, 0.9, 0.3, 0.9, 0.2), evaluate_every=2, patience=2).go()
    assert [report.best for report in e.reports] == [0, 2, 0, 2, 0, 2]


def test_rows_that_say_nothing_end_nothing() -> None:
    e = course((None, None, None), patience=1).go()
    assert len(e.reports) == 3
    assert e.return_to_best() == 3
    assert not e.reports[-1].validation.known


def test_the_last_round_is_kept_if_that_is_wanted() -> None:
    e = course(RISING_THEN_FALLING[:7], keep_best=False).go()
    last = everything(e)
    assert e.return_to_best() == 7
    assert not differences(everything(e), last)


def test_a_site_that_is_away_counts_with_what_it_reported_last() -> None:
    best = BestRound.fresh(2, keep=False)
    assert best.judge(1, {0: Validity(0.8, 1.0), 1: Validity(0.2, 1.0)}, dict).score == pytest.approx(0.5)
    assert best.judge(2, {0: Validity(0.7, 1.0)}, dict).score == pytest.approx(0.45)
    assert best.round == 1


@pytest.mark.parametrize("stop", [1, 3, 5, 6])
def test_a_resumed_run_knows_the_best_round(stop: int, tmp_path: Path) -> None:
    path, settings = tmp_path / "last.safetensors", {"patience": 3, "checkpoint_every": 2}
    whole = course(RISING_THEN_FALLING, **settings).go()
    course(RISING_THEN_FALLING, **settings).go(path, stop_after=stop)
    rest = course(RISING_THEN_FALLING, **settings)
    rest.state.restore(path)
    rest.go(path)
    assert rest.state.best is not None
    assert whole.state.best is not None
    assert rest.state.best.words() == whole.state.best.words()
    assert [report.best for report in rest.reports] == [report.best for report in whole.reports[stop:]]
    for e in (whole, rest):
        e.return_to_best()
    assert not differences(everything(rest), everything(whole))
    assert [file.name for file in tmp_path.glob("best-*")] == ["best-000004.safetensors"]


def test_a_run_that_had_ended_stays_ended(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    course(RISING_THEN_FALLING, patience=3).go(path)
    again = course(RISING_THEN_FALLING, patience=3)
    again.state.restore(path)
    assert again.go().reports == []
    assert again.return_to_best() == 4


def test_a_checkpoint_names_a_best_round_that_is_on_disk_whenever_the_process_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of the best round is written before the checkpoint that names it; the old one goes after it."""
    path, seen = tmp_path / "last.safetensors", list[tuple[str, set[str]]]()
    import imperfed.engine.checkpoint_files as state

    write = state.write_durably

    def watched(to: Path, content: Any) -> None:
        seen.append((to.name, {file.name for file in tmp_path.glob("best-*")}))
        write(to, content)

    monkeypatch.setattr(state, "write_durably", watched)
    course((0.1, 0.2, 0.0), checkpoint_every=1).go(path)
    one, two = "best-000001.safetensors", "best-000002.safetensors"
    assert seen == [
        (one, set()),
        (path.name, {one}),
        (two, {one}),
        (path.name, {one, two}),
        (path.name, {one, two}),  # not written again; the first is named by the checkpoint before
    ]
    assert {file.name for file in tmp_path.glob("best-*")} == {two}
    assert not differences(load_file(tmp_path / two), course((0.1, 0.2)).go().state.flat())


def test_a_checkpoint_without_its_best_round_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    course((0.1, 0.2), checkpoint_every=1).go(path)
    (tmp_path / "best-000002.safetensors").unlink()
    earlier = course((0.1, 0.2))
    assert "best-000002.safetensors: not a readable checkpoint" in earlier.state.restore(path)
    assert earlier.state.round == 1
    (tmp_path / "before-last.safetensors").unlink()
    (tmp_path / "best-000001.safetensors").unlink()
    with pytest.raises(DataError, match=r"best-000001.safetensors: not a readable checkpoint"):
        course((0.1, 0.2)).state.restore(path)


def test_a_checkpoint_of_a_run_that_held_nothing_out_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    plain = replace(SCENE[0], validation=None)
    e = engine(Algorithm(), Plain(), (plain, SCENE[1])).go(path)
    assert e.state.best is None
    assert not list(tmp_path.glob("best-*"))
    with pytest.raises(DataError, match="not a readable checkpoint"):
        course((0.1, 0.2)).state.restore(path)


def test_patience_needs_rows_that_are_held_out() -> None:
    with pytest.raises(UsageError, match=r"rounds.patience = 2 ends a run by rows that the sites hold out, and none"):
        engine(Algorithm(), Plain(), world(Exact), patience=2)
    with pytest.raises(UsageError, match="patience"):
        engine(Algorithm(), Plain(), SCENE, patience=-1)


def test_held_out_rows_are_pooled_as_the_others() -> None:
    pooled = SCENE[0].pooled()
    assert pooled.validation is not None
    assert pooled.validation.sizes() == [22]
    assert torch.equal(pooled.validation.at(0)[0], pooled.validation.x)


def test_a_round_counts_with_the_mean_of_its_window() -> None:
    best = BestRound.fresh(1, keep=True)
    best.window = 3
    for round, score in enumerate((0.9, 0.3, 0.6, 0.7, 0.8, 0.5), 1):
        best.judge(round, {0: Validity(score, 1.0)}, partial(dict, w=torch.tensor(float(round))))
    assert best.round == 1  # a first round is compared by itself
    best = replace(BestRound.fresh(1, keep=True), window=3)
    for round, score in enumerate((0.5, 0.9, 0.1, 0.7, 0.8, 0.8, 0.7), 1):
        best.judge(round, {0: Validity(score, 1.0)}, partial(dict, w=torch.tensor(float(round))))
    assert (best.round, round_to(best.score), best.waited) == (6, 0.767, 1)  # not 2, which was lucky
    assert float(best.state["w"]) == 6
    assert best.recent == [0.8, 0.8, 0.7]


def round_to(score: float) -> float:
    return round(score, 3)
