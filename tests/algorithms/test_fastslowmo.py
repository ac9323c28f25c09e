import numpy as np
import pytest

from imperfed.algorithms.fastslowmo import FastSlowMo
from imperfed.algorithms.fedmom import FedMom
from imperfed.algorithms.fednag import FedNAG
from imperfed.core.errors import UsageError
from imperfed.engine.local_training import Local
from tests.support.averaging import (
    WITHOUT_MOMENTUM,
    assert_buffers_are_averaged,
    assert_composes,
    assert_same_models,
    learn,
)
from tests.support.bowls import BATCHES, FALLING, Hand, keeping_the_head, path, three
from tests.support.transcription import double, near


def test_two_clients_by_hand():
    assert path(FastSlowMo())[1] == pytest.approx([0.035, -0.916219, -0.890364], abs=1e-5)
    e, points = path(FastSlowMo(form="y"))
    assert points == pytest.approx([0.035, -1.505719, -1.879446], abs=1e-5)
    assert e.state.server["s"].item() == pytest.approx(-1.442126, abs=1e-5)
    assert e.state.server["y_a"].item() == pytest.approx(-1.510901, abs=1e-5)


def transcription(hand: Hand, gamma: float, gamma_a: float, form: str) -> Hand:
    """Both forms by two sequences: a velocity v means that y was left v behind at x - gamma v."""
    local, S = hand.spec.local, hand.S
    y_a, s = hand.x.copy(), hand.x.copy() if form == "y" else np.zeros(hand.S)
    for t, who in hand.rounds:
        lr = hand.lr(t)
        ends = []
        for k in who:
            x = np.concatenate([hand.x, hand.own[k]])
            y = np.concatenate([s if form == "y" else hand.x, hand.own[k]])
            v = np.concatenate([s, np.zeros(4 - S)])
            for h, xi in enumerate(hand.batches(t, k)):
                after = x - lr * (hand.g(k, x, xi) + local.weight_decay * x)
                v = gamma * v + after - x if h == 0 and form == "velocity" else after - y
                x, y = after + gamma * v, after
            ends.append([x[:S], y[:S] if form == "y" else v[:S]])
            hand.own[k] = x[S:]
        mean, s = np.einsum("k,kij->ij", hand.p(who), np.array(ends))
        hand.x, y_a = mean + gamma_a * (mean - y_a), mean
    return hand


@double()
@pytest.mark.parametrize("local", [BATCHES, FALLING], ids=["constant", "falling"])
@pytest.mark.parametrize("personal", [False, True])
@pytest.mark.parametrize("form", ["velocity", "y"])
def test_three_rounds_of_unequal_clients_with_one_absent(form: str, personal: bool, local: Local):
    method = FastSlowMo(gamma=0.6, gamma_a=0.3, form=form)
    e = three(
        keeping_the_head(method) if personal else method, local
    )  # with the run's momentum: the method does not use it
    hand = transcription(Hand(e), 0.6, 0.3, form)
    near(e.state.server["w"], hand.x, tolerance=1e-12)
    near(e.state.personal, np.stack(list(hand.own.values())), tolerance=1e-12)


@pytest.mark.parametrize("form", ["velocity", "y"])
def test_without_either_momentum_it_is_a_method_with_the_other(form: str):
    slow = FastSlowMo(gamma=0.0, gamma_a=0.6, form=form)
    assert_same_models(learn(slow, rounds=3), learn(FedMom(beta=0.6), WITHOUT_MOMENTUM, rounds=3), tolerance=1e-6)
    fast = FastSlowMo(gamma=0.6, gamma_a=0.0, form=form)
    assert_same_models(learn(fast, rounds=3), learn(FedNAG(gamma=0.6), rounds=3), tolerance=1e-5)


def test_two_models_go_down_and_two_come_up():
    e = learn(FastSlowMo(), rounds=1)
    assert e.reports[0].down == e.reports[0].up == 3 * 2 * len(e.state.server["w"]) * 4


@pytest.mark.parametrize("form", ["velocity", "y"])
def test_buffers_are_averaged_and_it_composes(form: str):
    assert_buffers_are_averaged(FastSlowMo(form=form))
    assert_composes(FastSlowMo(form=form))


def test_bad_settings_are_refused():
    with pytest.raises(UsageError, match=r"method\.gamma "):
        FastSlowMo(gamma=1.0)
    with pytest.raises(UsageError, match=r"method\.gamma_a"):
        FastSlowMo(gamma_a=-0.1)
