from dataclasses import replace

import numpy as np
import pytest

from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.slowmo import SlowMo
from imperfed.core.errors import UsageError
from imperfed.engine.local_training import Local
from tests.support.averaging import assert_buffers_are_averaged, assert_composes, assert_same_models, learn
from tests.support.bowls import BATCHES, FALLING, TWO_STEPS, Hand, keeping_the_head, path, three
from tests.support.transcription import double, near


def test_two_clients_by_hand():
    e, points = path(SlowMo(beta=0.5))
    assert points == pytest.approx([1.14, 0.151, -0.55635], abs=1e-5)
    assert e.state.server["u"].item() == pytest.approx(7.0735, abs=1e-4)
    heavy = replace(TWO_STEPS, momentum=0.5)
    assert path(SlowMo(beta=0.5), local=heavy)[1] == pytest.approx([0.89, -0.2755, -0.944275], abs=1e-5)


def transcription(hand: Hand, beta: float, alpha: float, strategy: str) -> tuple[Hand, np.ndarray]:
    local, S = hand.spec.local, hand.S
    u, mean_v, kept = np.zeros(S), np.zeros(S), {k: np.zeros(4) for k in range(3)}
    for t, who in hand.rounds:
        lr = hand.lr(t)
        ends = []
        for k in who:
            w = np.concatenate([hand.x, hand.own[k]])
            averaged = np.concatenate([mean_v, np.zeros(4 - S)])
            v = {"reset": np.zeros(4), "maintain": kept[k], "average": averaged}[strategy]
            for xi in hand.batches(t, k):
                v = local.momentum * v + hand.g(k, w, xi) + local.weight_decay * w
                w = w - lr * v
            ends.append([w[:S], v[:S]])
            kept[k], hand.own[k] = v, w[S:]
        mean, mean_v = np.einsum("k,kij->ij", hand.p(who), np.array(ends))
        u = beta * u + (hand.x - mean) / lr
        hand.x = hand.x - alpha * lr * u
    return hand, u


@double()
@pytest.mark.parametrize("local", [BATCHES, FALLING], ids=["constant", "falling"])
@pytest.mark.parametrize("personal", [False, True])
@pytest.mark.parametrize("strategy", ["reset", "maintain", "average"])
def test_three_rounds_of_unequal_clients_with_one_absent(strategy: str, personal: bool, local: Local):
    method = SlowMo(beta=0.6, alpha=0.8, buffer_strategy=strategy)
    e = three(keeping_the_head(method) if personal else method, local)
    hand, u = transcription(Hand(e), 0.6, 0.8, strategy)
    near(e.state.server["w"], hand.x, tolerance=1e-12)
    near(e.state.server["u"], u, tolerance=1e-10)
    near(e.state.personal, np.stack(list(hand.own.values())), tolerance=1e-12)


def test_without_momentum_it_is_fedavg():
    assert_same_models(learn(SlowMo(beta=0.0)), learn(FedAvg()), tolerance=1e-6)


def test_velocities_travel_only_to_be_averaged():
    for strategy, models in zip(("reset", "maintain", "average"), (1, 1, 2), strict=True):
        e = learn(SlowMo(buffer_strategy=strategy), rounds=1)
        assert e.reports[0].down == e.reports[0].up == 3 * models * len(e.state.server["w"]) * 4


@pytest.mark.parametrize("strategy", ["reset", "maintain", "average"])
def test_buffers_are_averaged_and_it_composes(strategy: str):
    assert_buffers_are_averaged(SlowMo(buffer_strategy=strategy))
    assert_composes(SlowMo(buffer_strategy=strategy))


def test_bad_settings_are_refused():
    with pytest.raises(UsageError, match=r"method\.beta"):
        SlowMo(beta=-0.1)
    with pytest.raises(UsageError, match=r"method\.alpha"):
        SlowMo(alpha=0.0)
