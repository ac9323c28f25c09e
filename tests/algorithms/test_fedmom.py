import numpy as np
import pytest

from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.fedmom import FedMom
from imperfed.core.errors import UsageError
from tests.support.averaging import assert_buffers_are_averaged, assert_composes, assert_same_models, learn
from tests.support.bowls import Hand, keeping_the_head, path, three
from tests.support.transcription import double, near


def test_two_clients_by_hand():
    assert path(FedMom(beta=0.5))[1] == pytest.approx([0.71, -0.11775, -0.505556], abs=1e-5)


def transcription(hand: Hand, beta: float, alpha: float) -> Hand:
    """The paper's other form: a buffer m of the ways that the sites went, on top of which the way itself is gone."""
    local, m = hand.spec.local, np.zeros(hand.S)
    for t, who in hand.rounds:
        ends = []
        for k in who:
            w, v = np.concatenate([hand.x, hand.own[k]]), np.zeros(4)
            for xi in hand.batches(t, k):
                v = local.momentum * v + hand.g(k, w, xi) + local.weight_decay * w
                w = w - local.lr * v
            ends.append(w[: hand.S])
            hand.own[k] = w[hand.S :]
        delta = hand.x - hand.p(who) @ np.array(ends)
        m = beta * m + alpha * delta
        hand.x = hand.x - (alpha * delta + beta * m)
    return hand


@double()
@pytest.mark.parametrize("personal", [False, True])
def test_three_rounds_of_unequal_clients_with_one_absent(personal: bool):
    method = FedMom(beta=0.6, alpha=0.8)
    e = three(keeping_the_head(method) if personal else method)
    hand = transcription(Hand(e), 0.6, 0.8)
    near(e.state.server["w"], hand.x, tolerance=1e-12)
    near(e.state.personal, np.stack(list(hand.own.values())), tolerance=1e-12)


def test_without_momentum_it_is_fedavg():
    assert_same_models(learn(FedMom(beta=0.0)), learn(FedAvg()), tolerance=1e-6)


def test_one_model_goes_down_and_one_comes_up():
    e = learn(FedMom(), rounds=1)
    assert e.reports[0].down == e.reports[0].up == 3 * len(e.state.server["w"]) * 4


def test_buffers_are_averaged():
    assert_buffers_are_averaged(FedMom())


def test_it_composes():
    assert_composes(FedMom(beta=0.5))


def test_bad_settings_are_refused():
    with pytest.raises(UsageError, match=r"method\.beta"):
        FedMom(beta=1.0)
    with pytest.raises(UsageError, match=r"method\.alpha"):
        FedMom(alpha=0.0)
