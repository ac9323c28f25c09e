"""When candidate sets tell too little, trials are judged by what all of them agree on."""

from __future__ import annotations

import pytest
import torch

from imperfed.alone.forest import Forest
from imperfed.alone.trained_network import NetworkAlone
from imperfed.core.labels import Annotated, Candidates, Exact, Memberships
from imperfed.experiments.auto.alone_search import OwnModel, joined
from imperfed.experiments.auto.consensus import agreement, contradictory, leaves_open, resolved, weight_of

SETS = Candidates(torch.tensor([[True, True, False], [False, True, True], [True, False, False]]), 3)
SURE = {
    2: torch.tensor([[0.8, 0.2, 0.0], [0.0, 0.7, 0.3], [0.1, 0.8, 0.1]]),
    0: torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.9, 0.1, 0.0]]),
    1: torch.tensor([[0.1, 0.6, 0.3], [0.1, 0.6, 0.3], [0.8, 0.1, 0.1]]),
}
WEIGHTS = {0: 1.0, 1: 1.0, 2: 2.0}


def test_what_trials_say_counts_inside_the_sets_only() -> None:
    expected = [
        [(2 * 0.8 + 0.6 / 0.9 + 0.1 / 0.7) / 4, (2 * 0.2 + 0.3 / 0.9 + 0.6 / 0.7) / 4, 0.0],
        [0.0, (2 * 0.7 + 0.2 / 0.8 + 0.6 / 0.9) / 4, (2 * 0.3 + 0.6 / 0.8 + 0.3 / 0.9) / 4],
        [1.0, 0.0, 0.0],
    ]
    torch.testing.assert_close(resolved(SETS, SURE, WEIGHTS).values, torch.tensor(expected), atol=1e-5, rtol=0)


def test_a_trial_counts_by_the_odds_of_its_score() -> None:
    assert abs(weight_of(0.9) - 2.19722) < 1e-5
    assert 0 < weight_of(-1.0) < weight_of(0.6) < weight_of(0.99) == weight_of(1.0)


def test_hits_and_pairs_that_agree() -> None:
    truth = resolved(SETS, SURE, WEIGHTS).values.double()
    *hits, agreeing = agreement(SETS, SURE, WEIGHTS, [0, 2]).tolist()
    assert abs(hits[0] - float(truth[0, 0] + truth[1, 2] + truth[2, 0])) < 1e-9
    assert abs(hits[1] - float(truth[0, 0] + truth[1, 1] + truth[2, 1])) < 1e-9
    assert agreeing == 3  # one pair on each row


def test_trials_without_a_weight_are_judged_but_have_no_say() -> None:
    two = {number: WEIGHTS[number] for number in (1, 2)}
    truth = resolved(SETS, SURE, two).values.double()
    torch.testing.assert_close(truth[0, 0], torch.tensor((2 * 0.8 + 0.1 / 0.7) / 3).double(), atol=1e-5, rtol=0)
    hits, agreeing = agreement(SETS, SURE, two, [0]).tolist()
    assert abs(hits - float(truth[0, 0] + truth[1, 2] + truth[2, 0])) < 1e-9
    assert agreeing == 1  # on the second row


def test_own_models_that_decide_have_a_say_in_the_mixture() -> None:
    said = torch.full((3, 3), 1 / 3)
    own = [
        OwnModel(Forest(), said, 0.9),
        OwnModel(NetworkAlone(objective="cc"), 0.5 * said, 0.8),
        OwnModel(NetworkAlone(objective="average-ce"), said, 0.9),
        OwnModel(NetworkAlone(objective="proden"), said, None),
        OwnModel(NetworkAlone(objective="lcp"), said, 0.9),
    ]
    trials, weights = joined(SURE, WEIGHTS, own)
    assert sorted(trials) == sorted(weights) == [-5, -2, 0, 1, 2]
    assert torch.equal(trials[-2], 0.5 * said)
    assert {number: weights[number] for number in WEIGHTS} == WEIGHTS
    assert weights[-2] + weights[-5] == pytest.approx(4.0)  # as much as all trials together
    assert weights[-2] / weights[-5] == pytest.approx(weight_of(0.8) / weight_of(0.9))
    assert joined(SURE, WEIGHTS, own[:1]) == (SURE, WEIGHTS)


def test_scores_are_believed_unless_trials_agree_on_fewer_rows_than_they_claim() -> None:
    assert contradictory([0.9, 0.9], agreeing=7, rows=10)
    assert not contradictory([0.9, 0.9], agreeing=8, rows=10)
    assert contradictory([0.9, 0.9, 0.9], agreeing=23, rows=10)
    assert not contradictory([0.9, 0.9, 0.9], agreeing=24, rows=10)
    assert not contradictory([0.9], agreeing=0, rows=10)
    assert not contradictory([0.9, 0.9], agreeing=0, rows=0)


def test_only_candidate_sets_are_judged_so() -> None:
    assert [leaves_open(kind) for kind in (Candidates, Memberships, Exact, Annotated)] == [True, False, False, False]
