from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.fednag import FedNAG
from imperfed.core.errors import UsageError
from imperfed.core.federation import Trusted
from imperfed.core.labels import Exact
from imperfed.engine.local_training import Local, plan
from imperfed.engine.seeds import SERVER, generator
from imperfed.testing.toy import Plain, differences, engine, network, world
from tests.support.averaging import (
    LOCAL,
    WITHOUT_MOMENTUM,
    assert_buffers_are_averaged,
    assert_composes,
    assert_same_models,
    learn,
)
from tests.support.bowls import (
    BATCHES,
    FALLING,
    START,
    THREE,
    Bowl,
    Hand,
    bowls,
    keeping_the_head,
    path,
    stretched,
    three,
)
from tests.support.transcription import double, near


def test_two_clients_by_hand():
    e, points = path(FedNAG(gamma=0.5))
    assert points == pytest.approx([0.69, -0.077875, -0.376992], abs=1e-5)
    assert e.state.server["v"].item() == pytest.approx(-0.143128, abs=1e-5)


def transcription(hand: Hand, gamma: float) -> tuple[Hand, np.ndarray]:
    """The paper's two sequences: Y is a plain step, y goes on beyond it; both are averaged."""
    local, S = hand.spec.local, hand.S
    Y = hand.x.copy()
    for t, who in hand.rounds:
        lr = hand.lr(t)
        ends = []
        for k in who:
            y = np.concatenate([hand.x, hand.own[k]])
            before = np.concatenate([Y, hand.own[k]])  # what stays has no velocity at first
            for xi in hand.batches(t, k):
                after = y - lr * (hand.g(k, y, xi) + local.weight_decay * y)
                y, before = after + gamma * (after - before), after
            ends.append([y[:S], before[:S]])
            hand.own[k] = y[S:]
        hand.x, Y = np.einsum("k,kij->ij", hand.p(who), np.array(ends))
    return hand, Y


@double()
@pytest.mark.parametrize("local", [BATCHES, FALLING], ids=["constant", "falling"])
@pytest.mark.parametrize("personal", [False, True])
def test_three_rounds_of_unequal_clients_with_one_absent(personal: bool, local: Local):
    method = keeping_the_head(FedNAG(gamma=0.6)) if personal else FedNAG(gamma=0.6)
    e = three(method, local)  # with the run's momentum: the method does not use it
    hand, Y = transcription(Hand(e), gamma=0.6)
    near(e.state.server["w"], hand.x, tolerance=1e-12)
    near(0.6 * e.state.server["v"], hand.x - Y, tolerance=1e-12)  # y = Y + gamma v
    near(e.state.personal, np.stack(list(hand.own.values())), tolerance=1e-12)
    assert np.abs(hand.x - Y).min() > 1e-3


def test_alone_it_is_torchs_nesterov_momentum_over_all_rounds():
    local = replace(LOCAL, batch=64)
    e = learn(FedNAG(gamma=0.8), local, (31,), rounds=3)
    federation, _ = world(Exact, (31,))
    model = network()
    optimiser = torch.optim.SGD(model.parameters(), local.lr, 0.8, weight_decay=local.weight_decay, nesterov=True)
    for _ in range(3 * local.steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(federation.x), federation.labels.values).backward()
        optimiser.step()
    for name, p in model.named_parameters():
        torch.testing.assert_close(e.model(0)[name], p.detach(), rtol=0, atol=1e-5)


def test_without_its_momentum_it_is_fedavg_without_momentum():
    """To rounding: FedAvg's sites step together, in one batched program."""
    assert_same_models(learn(FedNAG(gamma=0.0)), learn(FedAvg(), WITHOUT_MOMENTUM), tolerance=1e-6)


@double()
@pytest.mark.parametrize("public", [0.2, 0.5])
def test_the_servers_rows_are_one_more_worker(public: float):
    """Equal to a federation in which a further site, never absent, holds them, with its weight given."""
    rows = [[1.3, 0.4, -0.2], [0.7, -0.8, 0.9], [1.9, 0.1, 0.3]]
    federation, oracle = bowls(*THREE)
    labels = Exact(torch.zeros(3, dtype=torch.int64), 1)
    data = replace(federation, trusted=Trusted(torch.tensor(rows), labels)), oracle
    e = engine(FedNAG(gamma=0.6, public_weight=public), Bowl(), data, BATCHES, stretched(), rounds=3).go()
    hand = Hand(e)
    hand.rows.append(np.array(rows))
    x, v = START.copy(), np.zeros(4)
    for t, who in hand.rounds:
        ends = []
        for k in (*who, 3):
            y, u = x.copy(), v.copy()
            draw = generator(0, t, k if k < 3 else SERVER, "batches")
            method = e.population.spec.algorithm
            for at in plan(method, e.population.spec.objective, BATCHES, len(hand.rows[k]), draw).rows.numpy():
                g = hand.g(k, y, at[at < len(hand.rows[k])]) + BATCHES.weight_decay * y
                u = 0.6 * u - BATCHES.lr * g
                y = y + 0.6 * u - BATCHES.lr * g
            ends.append([y, u])
        x, v = np.einsum("k,kij->ij", np.append((1 - public) * hand.p(who), public), np.array(ends))
    near(e.state.server["w"], x, tolerance=1e-12)
    near(e.state.server["v"], v, tolerance=1e-12)


def test_alone_the_servers_rows_make_the_model_and_nothing_comes_up():
    e = learn(FedNAG(gamma=0.8, public_weight=1.0), rounds=3)
    trusted = world(Exact)[0].trusted
    assert trusted is not None
    federation, oracle = world(Exact, (12, 20, 31))
    other = replace(federation, x=torch.randn_like(federation.x)), oracle
    assert_same_models(e, engine(FedNAG(gamma=0.8, public_weight=1.0), Plain(), other, rounds=3).go())
    assert all(report.up == 0 and not report.sent and not report.failures for report in e.reports)
    assert not differences(e.model(0), e.model(2))
    assert differences(e.model(0), learn(FedNAG(gamma=0.8), rounds=3).model(0), tolerance=1e-3)


def test_rows_at_the_server_are_asked_for_only_where_they_count():
    assert not FedNAG().needs_server_rows
    assert FedNAG(public_weight=0.2).needs_server_rows
    federation, oracle = world(Exact)
    with pytest.raises(UsageError, match=r"set split\.trusted"):
        engine(FedNAG(public_weight=0.2), Plain(), (replace(federation, trusted=None), oracle)).go()


def test_two_models_go_down_and_two_come_up():
    e = learn(FedNAG(), rounds=1)
    d = len(e.state.server["w"])
    assert e.reports[0].down == e.reports[0].up == 3 * 2 * d * 4


def test_buffers_are_averaged():
    assert_buffers_are_averaged(FedNAG())


def test_the_servers_own_running_statistics_have_its_weight():
    alone, mixed = (learn(FedNAG(public_weight=p), net=network(nn.BatchNorm1d(8)), rounds=1) for p in (1.0, 0.25))
    sent, own = mixed.seen[-1], alone.state.server["buffers"]
    sites = sent.by_size() @ sent["buffers"]
    torch.testing.assert_close(mixed.state.server["buffers"], 0.75 * sites + 0.25 * own)
    assert (own - sites).abs().max() > 0.01


def test_it_composes():
    assert_composes(FedNAG(gamma=0.5))


@pytest.mark.parametrize("gamma", [-0.1, 1.0])
def test_bad_settings_are_refused(gamma: float):
    with pytest.raises(UsageError, match=r"method\.gamma"):
        FedNAG(gamma=gamma)
    with pytest.raises(UsageError, match=r"method\.public_weight"):
        FedNAG(public_weight=gamma + 0.05)
