from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.scaffold import Scaffold
from imperfed.core.errors import UsageError
from imperfed.defences.median import Median
from imperfed.engine.local_training import Local
from imperfed.testing.toy import engine, network
from tests.support.averaging import (
    EQUAL,
    LOCAL,
    WITHOUT_MOMENTUM,
    assert_buffers_are_averaged,
    assert_composes,
    assert_same_models,
    learn,
)
from tests.support.bowls import BATCHES, FALLING, Hand, Narrow, bowls, keeping_the_head, only, path, three
from tests.support.fair_federation import defended, federation
from tests.support.transcription import double, near


def test_two_clients_by_hand():
    e, points = path(Scaffold())
    assert points == pytest.approx([1.14, 0.5475, 0.165905], abs=1e-5)
    assert e.state.server["c"].item() == pytest.approx(1.907975, abs=1e-5)
    assert e.state.memory["c"].flatten().tolist() == pytest.approx([-0.579725, 4.395675], abs=1e-5)


def test_two_clients_with_full_gradients_as_control_variates():
    x, c, expected = 2.0, np.zeros(2), []
    a, b = np.array([1.0, 3.0]), np.array([1.0, -1.0])
    for _ in range(3):
        y = np.full(2, x)
        for _ in range(2):
            y = y - 0.1 * (a * (y - b) - c + c.mean())
        x, c = y.mean(), a * (x - b)
        expected.append(x)
    e, points = path(Scaffold(option=1))
    assert points == pytest.approx(expected, abs=1e-5)
    assert e.state.memory["c"].flatten().tolist() == pytest.approx(c.tolist(), abs=1e-5)
    assert points != pytest.approx(path(Scaffold())[1], abs=1e-3)


def transcription(hand: Hand, option: int, alpha: float) -> tuple[Hand, np.ndarray, np.ndarray]:
    local, S = hand.spec.local, hand.S
    c, c_k = np.zeros(S), np.zeros((3, S))
    for t, who in hand.rounds:
        lr = hand.lr(t)
        dy, dc = np.zeros(S), np.zeros(S)
        for k in who:
            y = np.concatenate([hand.x, hand.own[k]])
            full = hand.g(k, y)[:S]
            for xi in hand.batches(t, k):
                g = hand.g(k, y, xi) + local.weight_decay * y
                g[:S] += -c_k[k] + c
                y = y - lr * g
            new = full if option == 1 else c_k[k] - c + (hand.x - y[:S]) / (local.steps * lr)
            dy += (y[:S] - hand.x) / len(who)
            dc += (new - c_k[k]) / 3
            c_k[k], hand.own[k] = new, y[S:]
        hand.x, c = hand.x + alpha * dy, c + dc
    return hand, c, c_k


@double()
@pytest.mark.parametrize("local", [BATCHES, FALLING], ids=["constant", "falling"])
@pytest.mark.parametrize("personal", [False, True])
@pytest.mark.parametrize(("option", "alpha"), [(2, 1.0), (2, 0.6), (1, 1.4)])
def test_three_rounds_of_unequal_clients_with_one_absent(option: int, alpha: float, personal: bool, local: Local):
    method = Scaffold(option=option, alpha=alpha)
    e = three(keeping_the_head(method) if personal else method, local)
    hand, c, c_k = transcription(Hand(e), option, alpha)
    near(e.state.server["w"], hand.x, tolerance=1e-12)
    near(e.state.server["c"], c, tolerance=1e-12)
    near(e.state.memory["c"], c_k, tolerance=1e-12)
    near(e.state.personal, np.stack(list(hand.own.values())), tolerance=1e-12)


@double()
def test_a_control_variate_is_the_mean_of_the_sites_own_gradients():
    e = three(Scaffold(), replace(BATCHES, weight_decay=0.0))
    hand = Hand(e)
    (first, who), w = hand.rounds[0], np.concatenate([hand.x, hand.own[0]])
    for k in who:
        y, gradients = w, []
        for xi in hand.batches(first, k):
            gradients.append(hand.g(k, y, xi))
            y = y - 0.1 * gradients[-1]
        near(e.seen[0]["dc"][who.index(k)], np.mean(gradients, 0), tolerance=1e-12)


@pytest.mark.parametrize("option", [1, 2])
def test_if_all_take_part_the_servers_is_the_mean_of_the_sites(option: int):
    e = learn(Scaffold(option=option))
    assert e.state.memory["c"].abs().max() > 0.01
    torch.testing.assert_close(e.state.server["c"], e.state.memory["c"].mean(0), rtol=0, atol=1e-6)


def test_the_first_round_is_fedavgs_without_momentum():
    """To rounding: FedAvg's sites step together, in one batched program."""
    plain = learn(FedAvg(), WITHOUT_MOMENTUM, EQUAL, rounds=1)
    for option in (1, 2):  # with the run's momentum: the method does not use it
        assert_same_models(learn(Scaffold(option=option), LOCAL, EQUAL, rounds=1), plain, tolerance=1e-6)


def test_with_one_client_there_is_nothing_to_correct():
    alone = learn(Scaffold(), sizes=(31,), rounds=4)
    assert_same_models(alone, learn(FedAvg(), WITHOUT_MOMENTUM, (31,), rounds=4), tolerance=1e-5)


def test_the_full_pass_goes_in_slices_and_counts_every_row_once():
    rows = [[1.0 + i % 3, i / 100] for i in range(601)]
    e = engine(Scaffold(option=1), Narrow(), bowls(rows), Local(steps=1, batch=8, lr=0.1), only(2.0), rounds=1).go()
    expected = sum(a * (2.0 - b) for a, b in rows) / 601
    assert e.state.memory["c"].item() == pytest.approx(expected, abs=1e-5)


def test_the_full_pass_is_made_in_training_mode_like_a_step_on_all_rows():
    local = Local(steps=1, batch=64, lr=0.1)
    one, two = (learn(Scaffold(option=option), local, net=normalised(), rounds=1) for option in (1, 2))
    assert one.state.memory["c"].abs().max() > 0.01
    torch.testing.assert_close(one.state.memory["c"], two.state.memory["c"], rtol=0, atol=1e-5)


def test_the_full_pass_has_no_lone_row_and_leaves_the_buffers_alone():
    runs = [
        learn(a, replace(LOCAL, steps=1), (257,), net=normalised(), rounds=1) for a in (Scaffold(option=1), FedAvg())
    ]
    assert not runs[0].reports[0].failures
    assert torch.equal(runs[0].state.server["buffers"], runs[1].state.server["buffers"])


def normalised():
    return network(nn.BatchNorm1d(8))


def test_two_models_go_down_and_two_come_up():
    e = learn(Scaffold(), rounds=1)
    d = len(e.state.server["w"])
    assert e.reports[0].down == e.reports[0].up == 3 * 2 * d * 4


def test_buffers_are_averaged():
    assert_buffers_are_averaged(Scaffold(alpha=0.5), by_size=False)


@pytest.mark.parametrize("option", [1, 2])
def test_it_composes(option: int):
    assert_composes(Scaffold(option=option))


def test_bad_settings_are_refused():
    with pytest.raises(UsageError, match=r"method\.alpha"):
        Scaffold(alpha=0.0)


def test_a_rule_number_by_number_holds_for_the_control_variates_too():
    e = defended(Scaffold(), Median(), federation((1, 4, 8)), rounds=1)
    dc = e.seen[0]["dc"].quantile(0.5, 0)  # ten times the median, over ten sites
    torch.testing.assert_close(e.state.server["c"], dc, rtol=1e-5, atol=1e-6)
