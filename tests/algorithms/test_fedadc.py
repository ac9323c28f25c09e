from dataclasses import replace

import numpy as np
import pytest

from imperfed.algorithms.fedadc import FedADC
from imperfed.algorithms.slowmo import SlowMo
from imperfed.core.errors import UsageError
from imperfed.engine.local_training import Local
from tests.support.averaging import (
    LOCAL,
    WITHOUT_MOMENTUM,
    assert_buffers_are_averaged,
    assert_composes,
    assert_same_models,
    learn,
)
from tests.support.bowls import BATCHES, FALLING, Hand, keeping_the_head, path, three
from tests.support.transcription import double, near


@pytest.mark.parametrize(
    ("settings", "points"),
    [
        ({"beta_local": 0.5}, [1.14, 0.26925, -0.300634]),
        ({"beta_local": 0.5, "nesterov": False}, [1.14, 0.194, -0.4596]),
        ({"beta_local": 0.0}, [1.14, 0.151, -0.55635]),
    ],
)
def test_two_clients_by_hand(settings: dict[str, object], points: list[float]):
    e, found = path(FedADC(beta_global=0.5, **settings))  # type: ignore[arg-type]
    assert found == pytest.approx(points, abs=1e-5)
    if e.population.spec.algorithm == FedADC(0.5, 0.5):
        assert e.state.server["M"].item() / 0.1 == pytest.approx(5.698844, abs=1e-4)


def transcription(hand: Hand, b_l: float, b_g: float, alpha: float, nesterov: bool) -> Hand:
    """As printed: m of the scale of gradients."""
    local, S, m = hand.spec.local, hand.S, np.zeros(hand.S)
    for t, who in hand.rounds:
        lr = hand.lr(t)
        ways = []
        for k in who:
            y, batches = np.concatenate([hand.x, hand.own[k]]), hand.batches(t, k)
            shift = np.concatenate([lr * b_l * m / len(batches), np.zeros(4 - S)])
            for xi in batches:
                at = y - shift if nesterov else y
                y = y - shift - lr * (hand.g(k, at, xi) + local.weight_decay * at)
            ways.append(hand.x - y[:S])
            hand.own[k] = y[S:]
        m = hand.p(who) @ np.array(ways) / lr + (b_g - b_l) * m
        hand.x = hand.x - alpha * lr * m
    return hand


@double()
@pytest.mark.parametrize("local", [BATCHES, FALLING], ids=["constant", "falling"])
@pytest.mark.parametrize("personal", [False, True])
@pytest.mark.parametrize("nesterov", [False, True])
def test_three_rounds_of_unequal_clients_with_one_absent(nesterov: bool, personal: bool, local: Local):
    method = FedADC(beta_local=0.4, beta_global=0.7, alpha=0.8, nesterov=nesterov)
    e = three(
        keeping_the_head(method) if personal else method, local
    )  # with the run's momentum: the method does not use it
    hand = transcription(Hand(e), 0.4, 0.7, 0.8, nesterov)
    near(e.state.server["w"], hand.x, tolerance=1e-12)
    near(e.state.personal, np.stack(list(hand.own.values())), tolerance=1e-12)


def test_every_site_embeds_the_whole_share_however_many_steps_it_makes():
    e = learn(FedADC(beta_local=0.5), replace(LOCAL, epochs=2, batch=8, lr=1e-12), rounds=1)
    e.state.server["M"].fill_(0.25)
    e.round(1)
    assert (e.seen[-1]["w"] - e.seen[-2]["w"] + 0.125).abs().max() < 1e-6


def test_with_nothing_embedded_it_is_slowmo():
    slow = learn(SlowMo(beta=0.6), WITHOUT_MOMENTUM, rounds=3)
    assert_same_models(learn(FedADC(beta_local=0.0, beta_global=0.6), rounds=3), slow, tolerance=1e-6)


def test_two_models_go_down_and_one_comes_up():
    e = learn(FedADC(), rounds=1)
    d = 3 * len(e.state.server["w"]) * 4
    assert (e.reports[0].down, e.reports[0].up) == (2 * d, d)


def test_buffers_are_averaged():
    assert_buffers_are_averaged(FedADC())


@pytest.mark.parametrize("nesterov", [False, True])
def test_it_composes(nesterov: bool):
    assert_composes(FedADC(beta_local=0.5, beta_global=0.5, nesterov=nesterov))


def test_bad_settings_are_refused():
    with pytest.raises(UsageError, match=r"method\.beta_local"):
        FedADC(beta_local=1.0)
    with pytest.raises(UsageError, match=r"method\.beta_global"):
        FedADC(beta_global=-0.1)
    with pytest.raises(UsageError, match=r"method\.alpha"):
        FedADC(alpha=0.0)
