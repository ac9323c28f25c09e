from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.mime import Mime
from imperfed.core.errors import UsageError
from imperfed.core.labels import Exact
from imperfed.engine.local_training import Local
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.evaluator import Evaluator
from imperfed.testing.toy import Plain, Watched, engine, network, one_by_one, world
from tests.support.averaging import (
    LOCAL,
    WITHOUT_MOMENTUM,
    assert_buffers_are_averaged,
    assert_composes,
    assert_same_models,
    learn,
)
from tests.support.bowls import BATCHES, FALLING, Hand, Narrow, bowls, keeping_the_head, only, path, three
from tests.support.transcription import double, near

ONCE = Local(steps=1, batch=8, lr=0.1)


@pytest.mark.parametrize(
    ("method", "expected", "momentum"),
    [
        (Mime(beta=0.5, form="paper"), [1.525, 0.90275, 0.325102], 3.040250),
        (Mime(beta=0.5, form="paper", lite=True), [1.535, 0.919687, 0.345171], 3.062187),
        (Mime(beta=0.5), [1.1, 0.074, -0.645640], None),
    ],
    ids=repr,
)
def test_two_clients_by_hand(method: Mime, expected: list[float], momentum: float | None):
    e, points = path(method)
    assert points == pytest.approx(expected, abs=1e-5)
    assert momentum is None or e.state.server["m"].item() == pytest.approx(momentum, abs=1e-5)
    assert [u.trees.keys() for u in e.seen[:2]] == [{"g"}, {"w", "buffers"}]


def transcription(hand: Hand, method: Mime) -> tuple[Hand, np.ndarray]:
    local, S = hand.spec.local, hand.S
    new = 1 - method.beta if method.form == "paper" else 1.0
    m = np.zeros(S)
    for t, who in hand.rounds:
        lr = hand.lr(t)
        starts = {k: np.concatenate([hand.x, hand.own[k]]) for k in who}
        c = hand.p(who) @ np.array([hand.g(k, starts[k])[:S] for k in who]) + local.weight_decay * hand.x
        ends = []
        for k in who:
            y = starts[k]
            for xi in hand.batches(t, k):
                d = hand.g(k, y, xi) + local.weight_decay * y
                if not method.lite:
                    g_x = hand.g(k, np.concatenate([hand.x, y[S:]]), xi)[:S] + local.weight_decay * hand.x
                    d[:S] += c - g_x
                d[:S] = new * d[:S] + method.beta * m
                y = y - lr * d
            ends.append(y[:S])
            hand.own[k] = y[S:]
        hand.x = hand.x - method.alpha * (hand.x - hand.p(who) @ np.array(ends))
        m = new * c + method.beta * m
    return hand, m


@double()
@pytest.mark.parametrize("local", [BATCHES, FALLING], ids=["constant", "falling"])
@pytest.mark.parametrize("personal", [False, True])
@pytest.mark.parametrize(
    "method",
    [
        Mime(beta=0.6),
        Mime(beta=0.6, lite=True),
        Mime(beta=0.6, form="paper", alpha=0.7),
        Mime(beta=0.6, form="paper", lite=True, alpha=1.3),
    ],
    ids=repr,
)
def test_three_rounds_of_unequal_clients_with_one_absent(method: Mime, personal: bool, local: Local):
    e = three(keeping_the_head(method) if personal else method, local)  # with the run's momentum, which is not used
    hand, m = transcription(Hand(e), method)
    near(e.state.server["w"], hand.x, tolerance=1e-12)
    near(e.state.server["m"], m, tolerance=1e-12)
    near(e.state.personal, np.stack(list(hand.own.values())), tolerance=1e-12)


@pytest.mark.parametrize("decay", [0.0, 1.0])
@pytest.mark.parametrize("lite", [False, True])
@pytest.mark.parametrize("form", ["paper", "accumulate"])
def test_with_one_step_it_is_the_centralised_optimiser(form: str, lite: bool, decay: float):
    x, m, expected = 2.0, 0.0, []
    for _ in range(3):
        c = ((x - 1) + 3 * (x + 1)) / 2 + decay * x
        m = (0.3 if form == "paper" else 1.0) * c + 0.7 * m
        x -= 0.1 * m
        expected.append(x)
    method, local = Mime(beta=0.7, form=form, lite=lite), replace(ONCE, weight_decay=decay)
    assert path(method, local=local)[1] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("form", ["paper", "accumulate"])
def test_lite_without_momentum_is_fedavg_without_momentum(form: str):
    assert_same_models(learn(Mime(beta=0.0, lite=True, form=form)), learn(FedAvg(), WITHOUT_MOMENTUM), 1e-6)


def test_without_momentum_and_with_one_step_it_is_gradient_descent_on_all_rows():
    everybody = Local(steps=1, batch=64, lr=0.1, momentum=0.0)
    assert_same_models(
        learn(Mime(beta=0.0), replace(everybody, batch=4), rounds=8), learn(FedAvg(), everybody, rounds=8), 1e-5
    )


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.BatchNorm1d(8)], ids=repr)
def test_both_gradients_of_a_step_are_of_the_same_function(layer: nn.Module):
    """At y = x they cancel, whatever rows and dropout a site drew: every site takes the server's step."""
    e = learn(Mime(), replace(LOCAL, steps=1), net=network(layer), rounds=2)
    for sent in (e.seen[1], e.seen[3]):
        torch.testing.assert_close(sent["w"], sent["w"][:1].expand(3, -1), rtol=0, atol=1e-6)
    assert (e.seen[3]["w"] - e.seen[1]["w"]).abs().max() > 1e-3


def test_full_gradients_go_in_slices_and_count_every_row_once():
    rows = [[1.0 + i % 3, i / 100] for i in range(601)]
    e = engine(Mime(), Narrow(), bowls(rows), ONCE, only(2.0), rounds=1).go()
    assert e.seen[0]["g"].item() == pytest.approx(sum(a * (2.0 - b) for a, b in rows) / 601, abs=1e-5)


def test_full_gradients_are_taken_in_training_mode():
    everybody = Local(steps=1, batch=64, lr=0.1, momentum=0.0)
    runs = [learn(a, everybody, net=network(nn.BatchNorm1d(8)), rounds=8) for a in (Mime(beta=0.0), FedAvg())]
    assert_same_models(*runs, tolerance=1e-5)


def test_full_gradients_have_no_lone_row():
    e = learn(Mime(), ONCE, (257,), net=network(nn.BatchNorm1d(8)), rounds=1)
    assert not e.reports[0].failures


def test_lite_sends_no_mean_gradient_down():
    down = [learn(Mime(lite=lite), rounds=1).reports[0].down for lite in (False, True)]
    assert down[0] * 3 == down[1] * 4  # the model twice, m and, unless lite, c


@pytest.mark.parametrize("lite", [False, True])
def test_buffers_are_averaged(lite: bool):
    assert_buffers_are_averaged(Mime(lite=lite, alpha=0.5))


@pytest.mark.parametrize("lite", [False, True])
def test_it_composes(lite: bool):
    assert_composes(Mime(lite=lite))


def test_bad_settings_are_refused():
    with pytest.raises(UsageError, match=r"method\.beta"):
        Mime(beta=1.0)
    with pytest.raises(UsageError, match=r"method\.alpha"):
        Mime(alpha=-1.0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU, or none in CUDA_VISIBLE_DEVICES")
def test_both_gradients_of_a_step_have_the_same_dropout_on_a_gpu():
    """At y = x they cancel, whatever a site drew: every site takes the server's step."""
    (federation, oracle), net = world(Exact), network(nn.Dropout(0.5))
    parts = (Mime(), Plain(), net, federation, Evaluator(oracle), replace(LOCAL, steps=1), Rounds(rounds=1), 0, None)
    w = Watched(*parts, one_by_one, torch.device("cuda", 0)).go().seen[1]["w"]
    torch.testing.assert_close(w, w[:1].expand_as(w), rtol=0, atol=1e-6)
