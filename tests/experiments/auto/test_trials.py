"""A trial that stops and goes on ends where one ends that never stopped."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from imperfed.data.federate import FederatedData
from imperfed.data.held_out import hold_out
from imperfed.data.oracle import Oracle
from imperfed.data.scale import Scale
from imperfed.experiments.auto import trials
from imperfed.experiments.auto.combinations import combinations_to_try
from imperfed.experiments.auto.request import AutoRequest
from imperfed.experiments.auto.trials import Progress
from imperfed.flower.coordinator.search_checkpoint import SearchCheckpoint
from tests.experiments.auto.conftest import federation

DATA = hold_out(FederatedData(federation("exact"), Oracle(None, (), ()), {}, Scale.none()), 0.2, 0)
ASKED = AutoRequest({}, {"workers": 1, "device": "cpu", "model.name": "logistic", "steps": 2})


def test_a_trial_goes_on_from_where_it_stopped(tmp_path: Path) -> None:
    first, *_ = combinations_to_try(ASKED, DATA)
    whole = trials.advance(first, DATA, Progress(), 7, False)
    part, kept = trials.advance(first, DATA, Progress(), 3, False), SearchCheckpoint(tmp_path)
    kept.save(0, 3, part)
    read = kept.load(0, 3)
    assert isinstance(read, Progress)
    assert len(read.recent) == 3
    went_on = trials.advance(first, DATA, read, 7, False)
    assert len(whole.recent) == trials.WINDOW
    for name in ("round", "score", "best", "waited", "recent"):
        assert getattr(went_on, name) == getattr(whole, name)
    for name, array in whole.best_state.items():
        assert np.array_equal(went_on.best_state[name], array)


def test_the_score_is_a_mean_of_rounds() -> None:
    first, *_ = combinations_to_try(ASKED, DATA)
    one = trials.advance(first, DATA, Progress(), 4, False)
    means = [sum(one.recent[: n + 1]) / (n + 1) for n in range(4)]
    assert one.score == max(means)
    assert one.best == means.index(max(means)) + 1
