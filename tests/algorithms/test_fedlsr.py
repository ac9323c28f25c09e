"""FedLSR: each term of its loss in numbers, and the views it compares."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from imperfed.algorithms.cross_entropy import CROSS_ENTROPY
from imperfed.algorithms.fedlsr import FedLSR, divergence, entropy, second_view, sharpened
from imperfed.algorithms.mse import MSE
from imperfed.core.errors import UsageError
from imperfed.core.labels import Exact
from imperfed.engine.local_training import Local, batches, plan
from imperfed.engine.seeds import generator
from imperfed.testing.toy import engine, network, one_by_one, world

Z1 = torch.tensor([[1.0, 0.0, -0.5]], dtype=torch.float64)
Z2 = torch.tensor([[0.6, 0.3, -0.2]], dtype=torch.float64)


def test_sharpened_mixture() -> None:
    logp = sharpened(Z1, Z2, torch.tensor(0.3, dtype=torch.float64))
    assert logp.exp().flatten().tolist() == pytest.approx([0.668250, 0.242529, 0.089221], abs=1e-6)
    assert -logp[0, 0].item() == pytest.approx(0.403093, abs=1e-6)
    assert torch.isfinite(sharpened(Z1, Z2, torch.tensor(0.0, dtype=torch.float64))).all()


def test_divergence_and_entropy() -> None:
    assert divergence(Z1, Z2).item() == pytest.approx(0.065342, abs=1e-6)
    sharp = ((entropy(3 * Z1) + entropy(3 * Z2)) / 2).item()  # the anchor is of the sharpened views, a and b
    assert sharp == pytest.approx(0.520237, abs=1e-6)
    sure = torch.tensor([[200.0, 0, 0]]), torch.tensor([[0, 200.0, 0]])
    assert divergence(*sure).item() == pytest.approx(math.log(2), abs=1e-4)  # nothing is divided by 0
    p = Z1.softmax(-1)
    assert entropy(Z1).item() == pytest.approx(float(-(p * p.log()).sum()), abs=1e-12)


def test_the_self_distillation_sets_in() -> None:
    ramp = FedLSR().ramp(torch.tensor([0.0, 5.0, 20.0, 60.0]))
    assert (0.4 * ramp).tolist() == pytest.approx([0, 0.1, 0.4, 0.4])


def test_a_step_adds_all_three_terms() -> None:
    """One step on one row, worked out again from the network's outputs for both views."""
    method = FedLSR(warmup=2)
    e = engine(method, method.objective, world(Exact, (9,)), Local(steps=1, batch=16, lr=0.1, momentum=0), rounds=2)
    e.go(stop_after=1)
    assert e.state.server["t"] == 1
    site, runtime = e.population.site(0), e.population.runtime
    down = e.population.down(0, method.exchanges(1)[0])
    steps = plan(method, CROSS_ENTROPY, e.population.spec.local, 9, generator(0, 1, 0, "batches"))
    net = runtime.load(site, down["w"], down["buffers"])
    _, batch = next(batches(site.data, {}, steps, pad=False))
    step = e.population.spec.local.step(net, batch, down, {}, {}, 0.1)
    z1, z2 = net(batch.x), net(second_view(batch.x, batch.draws["views"], 0.1))
    m = batch.draws["m"]
    p = m * z1.softmax(-1) + (1 - m) * z2.softmax(-1)
    hat = p.square() / p.square().sum(-1, keepdim=True)
    ce = -hat[torch.arange(9), batch.labels.values].log()
    total = ce + 0.4 * 0.5 * divergence(z1, z2) + 0.6 * (entropy(z1) + entropy(z2)) / 2
    torch.testing.assert_close(method.step_loss(method.objective, step)[0], total.mean())


def test_second_views_differ_row_by_row() -> None:
    u = torch.rand(4000, 3, generator=torch.Generator().manual_seed(0))
    shaken = second_view(torch.zeros(4000, 6), u, 0.5)
    assert shaken.std(0).tolist() == pytest.approx([0.5] * 6, abs=0.03)
    assert shaken.mean(0).tolist() == pytest.approx([0.0] * 6, abs=0.03)
    assert abs(torch.corrcoef(shaken.T)[0, 1]) < 0.1
    images = torch.arange(2 * 64.0).view(2, 1, 8, 8)
    moved = second_view(images, torch.tensor([[0.5, 0.5, 0.9], [0.5, 0.5, 0.1]]), 0.5)
    assert torch.equal(moved[0], images[0])  # the middle window, not mirrored
    assert torch.equal(moved[1], images[1].flip(2))


def test_running_statistics_are_those_of_the_rows_as_they_are() -> None:
    """The second view passes through batch normalisation without a trace."""
    method, data = FedLSR(jitter=5.0), world(Exact, (9,))
    net = network(nn.BatchNorm1d(8))
    with torch.no_grad():
        h = net.rep[0](data[0].x)
    local = Local(steps=1, batch=16, lr=0.1)
    e = engine(method, method.objective, data, local, net, rounds=1, make_backend=one_by_one).go()
    torch.testing.assert_close(e.seen[0]["buffers"][0, :8], 0.1 * h.mean(0))
    torch.testing.assert_close(e.seen[0]["buffers"][0, 8:], 0.9 + 0.1 * h.var(0))


def test_it_takes_no_other_objective() -> None:
    with pytest.raises(UsageError, match="takes no other objective"):
        FedLSR(objective=MSE())
