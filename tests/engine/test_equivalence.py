"""The engine against training loops written by hand with torch's own optimiser."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from imperfed.core.algorithm import Algorithm
from imperfed.core.labels import Exact
from imperfed.engine.local_training import Local, Plan, plan
from imperfed.engine.seeds import generator
from imperfed.testing.toy import Plain, Watched, engine, network, world


def batches_of(e: Watched, round: int, site: int, n: int) -> list[Tensor]:
    """The rows of each of a site's local batches, the padding cut off."""
    spec = e.population.spec
    p: Plan = plan(spec.algorithm, spec.objective, spec.local, n, generator(0, round, site, "batches"))
    return [index[index < n] for index in p.rows]


def by_hand(model: nn.Module, x: Tensor, y: Tensor, batches: list[Tensor], local: Local) -> float:
    """Train the model in place; returns the mean loss."""
    optimiser = torch.optim.SGD(model.parameters(), local.lr, local.momentum, weight_decay=local.weight_decay)
    losses = []
    for rows in batches:
        optimiser.zero_grad()
        loss = cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        losses.append(loss.item())
        optimiser.step()
    return sum(losses) / len(losses)


def assert_same(got: dict[str, Tensor], model: nn.Module, tolerance: float) -> None:
    for name, p in model.named_parameters():
        assert torch.allclose(got[name].double(), p.double(), rtol=0, atol=tolerance), name


def test_one_client_full_batch_one_step_is_gradient_descent() -> None:
    federation, oracle = world(Exact, (23,))
    local = Local(steps=1, batch=64, lr=0.3, momentum=0.0)
    e = engine(Algorithm(), Plain(), (federation, oracle), local, rounds=3).go()
    model = network()
    everyone = torch.arange(23)
    by_hand(model, federation.x, federation.labels.values, [everyone] * 3, local)
    assert_same(e.model(0), model, 1e-6)
    assert not torch.allclose(e.model(0)["head.bias"], network().head.bias, atol=1e-2)


@pytest.mark.parametrize("workers", [1, 2])
def test_many_steps_with_momentum_and_weight_decay_are_torchs(workers: int) -> None:
    federation, oracle = world(Exact, (37,))
    local = Local(steps=17, batch=8, lr=0.1, momentum=0.8, weight_decay=0.05)
    e = engine(Algorithm(), Plain(), (federation, oracle), local, rounds=1, workers=workers).go()
    model = network()
    loss = by_hand(model, federation.x, federation.labels.values, batches_of(e, 0, 0, 37), local)
    assert_same(e.model(0), model, 1e-6)
    assert e.reports[0].losses == {0: pytest.approx(loss, abs=1e-6)}


def test_fedavg_of_unequal_clients_with_some_absent_is_the_weighted_mean() -> None:
    sizes = (9, 40, 21, 14)
    federation, oracle = world(Exact, sizes)
    local = Local(steps=6, batch=8, lr=0.1, momentum=0.9, weight_decay=0.02)
    e = engine(Algorithm(), Plain(), (federation, oracle), local, rounds=3, participation=0.5).go()
    x, y = federation.x.double(), federation.labels.values
    model = network().double()
    for report in e.reports:
        assert len(report.who) == 2
        trained = []
        for k in report.who:
            mine = copy.deepcopy(model)
            a, b = federation.starts[k], federation.starts[k + 1]
            by_hand(mine, x[a:b], y[a:b], batches_of(e, report.round, k, sizes[k]), local)
            trained.append(dict(mine.named_parameters()))
        total = sum(sizes[k] for k in report.who)
        with torch.no_grad():
            for name, p in model.named_parameters():
                parts = [sizes[k] / total * t[name] for k, t in zip(report.who, trained, strict=True)]
                p.copy_(torch.stack(parts).sum(0))
    assert len({report.who for report in e.reports}) > 1
    assert_same(e.model(0), model, 1e-5)


def test_epochs_give_larger_sites_more_steps() -> None:
    sizes = (9, 40)
    federation, oracle = world(Exact, sizes)
    local = Local(epochs=2, batch=8, lr=0.1)
    e = engine(Algorithm(), Plain(), (federation, oracle), local, rounds=1).go()
    mean = {name: torch.zeros_like(p) for name, p in network().named_parameters()}
    for k, n in enumerate(sizes):
        model, rows = network(), batches_of(e, 0, k, n)
        assert len(rows) == (4, 10)[k]
        a, b = federation.starts[k], federation.starts[k + 1]
        by_hand(model, federation.x[a:b], federation.labels.values[a:b], rows, local)
        mean = {name: mean[name] + n / 49 * p.detach() for name, p in model.named_parameters()}
    assert all(torch.allclose(e.model(0)[name], t, atol=1e-6) for name, t in mean.items())
