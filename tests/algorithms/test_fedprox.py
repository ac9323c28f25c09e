from dataclasses import replace

import numpy as np
import pytest

from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.fedprox import FedProx
from imperfed.core.errors import UsageError
from tests.support.averaging import (
    EQUAL,
    LOCAL,
    assert_buffers_are_averaged,
    assert_composes,
    assert_same_models,
    learn,
)
from tests.support.bowls import BATCHES, Hand, keeping_the_head, path, three
from tests.support.transcription import double, near

UNEQUAL = ([[1.0, 1.0]], [[3.0, -1.0]] * 3)


def test_two_clients_by_hand():
    assert path(FedProx(mu=1.0))[1] == pytest.approx([1.19, 0.6473, 0.283691], abs=1e-5)
    assert path(FedProx(mu=0.0))[1] == pytest.approx([1.14, 0.581, 0.217650], abs=1e-5)  # FedAvg


def test_sites_are_weighed_by_size_unless_told_otherwise():
    assert path(FedProx(mu=0.0), *UNEQUAL)[1] == pytest.approx([0.805, 0.12385, -0.264406], abs=1e-5)
    uniform = FedProx(mu=1.0, aggregation="uniform")
    assert path(uniform, *UNEQUAL)[1] == pytest.approx([1.19, 0.6473, 0.283691], abs=1e-5)


def transcription(hand: Hand, mu: float) -> Hand:
    local = hand.spec.local
    for t, who in hand.rounds:
        ends = []
        for k in who:
            w, v = np.concatenate([hand.x, hand.own[k]]), np.zeros(4)
            for xi in hand.batches(t, k):
                g = hand.g(k, w, xi) + local.weight_decay * w
                g[: hand.S] += mu * (w[: hand.S] - hand.x)
                v = local.momentum * v + g
                w = w - local.lr * v
            ends.append(w[: hand.S])
            hand.own[k] = w[hand.S :]
        hand.x = hand.p(who) @ np.array(ends)
    return hand


@double()
@pytest.mark.parametrize("personal", [False, True])
def test_three_rounds_of_unequal_clients_with_one_absent(personal: bool):
    method = keeping_the_head(FedProx(mu=0.7)) if personal else FedProx(mu=0.7)
    e = three(method)
    hand = transcription(Hand(e), mu=0.7)
    near(e.state.server["w"], hand.x, tolerance=1e-12)
    near(e.state.personal, np.stack(list(hand.own.values())), tolerance=1e-12)
    assert np.abs(hand.x - transcription(Hand(e), mu=0.35).x).max() > 1e-3  # the square must not lose its 2


@double()
def test_under_adam_the_term_passes_through_the_moments():
    local = replace(BATCHES, optimizer="adam", weight_decay=0.0)
    e = three(FedProx(mu=0.7), local)
    hand = Hand(e)
    for t, who in hand.rounds:
        ends = []
        for k in who:
            w, m, v = hand.x, 0.0, 0.0
            for s, xi in enumerate(hand.batches(t, k), 1):
                g = hand.g(k, w, xi) + 0.7 * (w - hand.x)
                m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
                w = w - local.lr * (m / (1 - 0.9**s)) / (np.sqrt(v / (1 - 0.999**s)) + 1e-8)
            ends.append(w)
        hand.x = hand.p(who) @ np.array(ends)
    near(e.state.server["w"], hand.x, tolerance=1e-12)


def test_without_its_term_it_is_fedavg():
    assert_same_models(learn(FedProx(mu=0.0)), learn(FedAvg()), 1e-6)
    assert_same_models(learn(FedProx(mu=0.0, aggregation="uniform"), sizes=EQUAL), learn(FedAvg(), sizes=EQUAL), 1e-6)


def test_only_weighted_by_size_is_the_mean_enough():
    """A secret sum is weighted by size, so that it cannot stand for the plain mean."""
    assert FedProx().needs_only_the_mean
    assert not FedProx(aggregation="uniform").needs_only_the_mean


def test_one_local_step_is_fedavgs():
    once = replace(LOCAL, steps=1, lr=0.5)
    assert_same_models(learn(FedProx(mu=10.0), once), learn(FedAvg(), once), 1e-6)


def test_buffers_are_averaged():
    assert_buffers_are_averaged(FedProx(mu=1.0))
    assert_buffers_are_averaged(FedProx(mu=1.0, aggregation="uniform"), by_size=False)


def test_it_composes():
    assert_composes(FedProx(mu=0.1))


def test_bad_settings_are_refused():
    with pytest.raises(UsageError, match=r"method\.mu must be 0 or more"):
        FedProx(mu=-0.1)
