from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from imperfed.algorithms.cavl import CAVL
from imperfed.algorithms.cc import CC
from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.lw import LW
from imperfed.algorithms.proden import PRODEN
from imperfed.algorithms.rc import RC
from imperfed.core.labels import Candidates
from imperfed.core.objective import Objective
from imperfed.nn.losses import masked_softmax
from imperfed.testing.toy import LOCAL, engine, network, world
from tests.support.transcription import (
    UNIFORM,
    Answers,
    S,
    W,
    Y,
    Z,
    assert_stable,
    batch,
    gradient,
    losses,
    near,
    one_step,
)


def test_starts_with_equal_confidences():
    near(RC().init_rows(S)["W"], UNIFORM)
    near(losses(RC(), {"W": UNIFORM}).mean(), 1.361156)


def test_numbers():
    rows = RC().update_rows(Answers(Z), batch(), None)
    near(rows["W"], W)
    near(losses(RC(), rows), [0.764123, 1.041978, 0.526192])
    near(losses(RC(), rows).mean(), 0.777431)


@given(st.integers(0, 10_000), st.floats(0.1, 20))
@settings(deadline=None, max_examples=50)
def test_with_fresh_confidences_the_gradient_is_that_of_cc(seed: int, scale: float):
    draw = torch.Generator().manual_seed(seed)
    z = scale * torch.randn(6, 5, generator=draw, dtype=torch.float64)
    sets = torch.rand(6, 5, generator=draw) < 0.5
    sets[torch.arange(6), torch.randint(5, (6,), generator=draw)] = True
    labels = Candidates(sets, 5)
    rows = RC().update_rows(Answers(z), batch(labels), None)
    torch.testing.assert_close(gradient(RC(), rows, z, labels), gradient(CC(), {}, z, labels), rtol=1e-9, atol=1e-12)


def test_confidences_come_from_the_pass_after_the_step():
    before, after, rows = one_step(RC())
    torch.testing.assert_close(rows["W"], masked_softmax(after, Y))
    assert not torch.allclose(rows["W"], masked_softmax(before, Y), atol=1e-3)


@pytest.mark.parametrize("objective", [RC(), CAVL(), LW()], ids=lambda o: o.name)
def test_the_second_pass_leaves_no_trace_in_running_statistics(objective: Objective):
    once = replace(LOCAL, steps=1)
    runs = [
        engine(FedAvg(), o, world(Candidates), once, network(nn.BatchNorm1d(8)), rounds=1).go()
        for o in (objective, PRODEN())  # which makes no second pass
    ]
    assert torch.equal(*(run.state.server["buffers"] for run in runs))


def test_certainty_of_a_non_candidate_is_not_zero_over_zero():
    labels = Candidates(torch.tensor([[False, True, True]]), 3)
    rows = RC().update_rows(Answers(torch.tensor([[1e4, -1e4, -1e4]])), batch(labels), None)
    near(rows["W"], [[0, 0.5, 0.5]])


def test_extreme_logits_stay_finite():
    assert_stable(RC())


def test_believes_its_confidences():
    near(RC().infer_labels(-Z, S, {"W": W}), W)
