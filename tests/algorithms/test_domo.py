from dataclasses import replace

import numpy as np
import pytest
import torch

from imperfed.algorithms.domo import DOMO
from imperfed.algorithms.slowmo import SlowMo
from imperfed.core.errors import UsageError
from imperfed.engine.local_training import Local
from tests.support.averaging import LOCAL, assert_buffers_are_averaged, assert_composes, assert_same_models, learn
from tests.support.bowls import BATCHES, FALLING, TWO_STEPS, Hand, keeping_the_head, path, three
from tests.support.transcription import double, near

HEAVY = replace(TWO_STEPS, momentum=0.5)


@pytest.mark.parametrize(
    ("settings", "points", "m"),
    [
        ({"b": 0.0}, [0.89, -0.2755, -0.944275], None),
        ({"b": 0.5}, [0.89, -0.02575, -0.475994], 2.251219),
        ({"b": 0.5, "fusion": "step"}, [0.89, -0.22, -0.8305], 3.0525),
        ({"b": 0.5, "keep": True}, [0.89, -0.39875, -0.937514], None),
    ],
)
def test_two_clients_by_hand(settings: dict[str, object], points: list[float], m: float | None):
    e, found = path(DOMO(mu_s=0.5, **settings), local=HEAVY)  # type: ignore[arg-type]
    assert found == pytest.approx(points, abs=1e-5)
    if m:
        assert e.state.server["M"].item() / (HEAVY.lr * HEAVY.steps) == pytest.approx(m, abs=1e-4)


def transcription(hand: Hand, mu_s: float, alpha: float, b: float, fusion: str, keep: bool) -> Hand:
    """As printed: m of the scale of gradients, the sites' local momenta counted one by one."""
    local, S, H = hand.spec.local, hand.S, hand.spec.local.steps
    m, kept = np.zeros(S), {k: np.zeros(4) for k in range(3)}
    for t, who in hand.rounds:
        lr = hand.lr(t)
        means = []
        for k in who:
            y, own, total = np.concatenate([hand.x, hand.own[k]]), kept[k] if keep else np.zeros(4), np.zeros(4)
            y[:S] -= lr * b * H * m if fusion == "start" else 0
            for xi in hand.batches(t, k):
                own = local.momentum * own + hand.g(k, y, xi) + local.weight_decay * y
                y = y - lr * own
                y[:S] -= lr * b * m if fusion == "step" else 0
                total = total + own
            means.append(total[:S] / H)
            kept[k], hand.own[k] = own, y[S:]
        m = mu_s * m + hand.p(who) @ np.array(means)
        hand.x = hand.x - alpha * lr * H * m
    return hand


@double()
@pytest.mark.parametrize("local", [BATCHES, FALLING], ids=["constant", "falling"])
@pytest.mark.parametrize("personal", [False, True])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("fusion", ["start", "step"])
def test_three_rounds_of_unequal_clients_with_one_absent(fusion: str, keep: bool, personal: bool, local: Local):
    method = DOMO(mu_s=0.6, alpha=0.8, b=0.7, fusion=fusion, keep=keep)
    e = three(keeping_the_head(method) if personal else method, local)
    hand = transcription(Hand(e), 0.6, 0.8, 0.7, fusion, keep)
    near(e.state.server["w"], hand.x, tolerance=1e-12)
    near(e.state.personal, np.stack(list(hand.own.values())), tolerance=1e-12)


def test_a_site_is_fused_with_the_whole_momentum_however_many_steps_it_makes():
    """The two fusions agree where gradients are nought: both have gone b M when the round ends."""
    still = replace(LOCAL, epochs=2, batch=8, lr=1e-12)
    ends = []
    for fusion in ("start", "step"):
        e = learn(DOMO(b=0.5, fusion=fusion), still, rounds=1)
        e.state.server["M"].fill_(0.25)
        e.round(1)
        ends.append(e.seen[-1]["w"] - e.seen[-2]["w"])
    assert (torch.stack(ends) + 0.125).abs().max() < 1e-6


def test_without_fusion_it_is_slowmo():
    assert_same_models(learn(DOMO(mu_s=0.6, b=0.0), rounds=3), learn(SlowMo(beta=0.6), rounds=3), tolerance=1e-6)


def test_the_momentum_goes_down_apart_only_where_every_step_needs_it():
    for fusion, models in zip(("start", "step"), (1, 2), strict=True):
        e = learn(DOMO(fusion=fusion), rounds=1)
        d = 3 * len(e.state.server["w"]) * 4
        assert (e.reports[0].down, e.reports[0].up) == (models * d, d)


@pytest.mark.parametrize("fusion", ["start", "step"])
def test_buffers_are_averaged_and_it_composes(fusion: str):
    assert_buffers_are_averaged(DOMO(fusion=fusion))
    assert_composes(DOMO(mu_s=0.5, b=0.5, fusion=fusion, keep=True))


def test_bad_settings_are_refused():
    with pytest.raises(UsageError, match=r"method\.mu_s"):
        DOMO(mu_s=1.0)
    with pytest.raises(UsageError, match=r"method\.alpha"):
        DOMO(alpha=0.0)
    with pytest.raises(UsageError, match=r"method\.b "):
        DOMO(b=-0.1)
