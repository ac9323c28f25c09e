"""Several sites in one program: the same answers as one by one, for whatever may be trained so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Batch, Tree
from imperfed.core.exchange import Train
from imperfed.core.labels import Exact
from imperfed.core.network import Network
from imperfed.core.objective import Objective
from imperfed.engine.backends import process, worker
from imperfed.engine.backends.sequential import respond
from imperfed.engine.backends.stacked import StackedNet, train_stacked
from imperfed.models import ModelSpec, build
from imperfed.testing.cases import Case, cases
from imperfed.testing.toy import LOCAL, Plain, Watched, differences, engine, everything, network, world
from tests.support.methods import objectives, overriding, shares_nothing


def answers_alike(e: Watched, sites: list[int]) -> None:
    """All that the sites send and keep is the same as when each is trained by itself."""
    e.round(0)  # from here on personal parts and memories differ from site to site
    exchanges = e.population.spec.algorithm.exchanges(1)
    (number,) = (i for i, exchange in enumerate(exchanges) if isinstance(exchange, Train))
    together = train_stacked(e.population, 1, number, sites)
    for k, one in zip(sites, together, strict=True):
        alone = respond(e.population, 1, number, k)
        for a, b in ((one.up, alone.up), (one.rows, alone.rows), (one.memory, alone.memory)):
            assert a.keys() == b.keys()
            for name in a:
                torch.testing.assert_close(a[name], b[name], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(one.personal, alone.personal, rtol=1e-5, atol=1e-6)
        assert one.loss == pytest.approx(alone.loss, rel=1e-5)
        assert not torch.equal(one.up["w"], e.state.server["w"])


def stacks(case: Case) -> bool:
    """Whether several sites of this case can be trained in one program."""
    one = case.objective
    by_rows = one.row_independent and not (one.reads_network or one.has_site_stats)
    return case.algorithm.has_plain_steps and by_rows and not shares_nothing(case.algorithm)


def engine_of(case: Case) -> Watched:
    return engine(case.algorithm, case.objective, world(case.kind))


STACKED = [case for case in cases() if stacks(case)]


@pytest.mark.parametrize("sites", [[0, 1, 2, 3], [0, 2], [1, 3]], ids=str)
@pytest.mark.parametrize("case", STACKED, ids=str)
def test_unequal_sites_with_padding_train_as_alone(case: Case, sites: list[int]) -> None:
    e = engine_of(case)
    assert e.backend.stacks
    answers_alike(e, sites)


def test_sites_with_parts_of_their_own_and_without_are_stacked() -> None:
    personal = {"is_personal" in case.algorithm.overridden for case in STACKED}
    assert personal == {True, False}


@pytest.mark.parametrize(
    "model", [ModelSpec("mlp", hidden=8), ModelSpec("mlp", hidden=5, layers=3), ModelSpec("linear")]
)
def test_the_zoos_small_networks(model: ModelSpec) -> None:
    answers_alike(engine(Algorithm(), Plain(), world(Exact), net=build(model, (6,), 4, 0)), [0, 1, 3])


def test_features_are_those_of_each_site() -> None:
    e = engine_of(next(case for case in STACKED if "build" in case.algorithm.overridden))  # layers before the head
    rows = torch.randn(2, e.population.spec.layout.size)
    x = torch.randn(6, 6)
    pair = StackedNet(e.population.runtime.net.module, e.population.spec.layout, rows, torch.zeros_like(rows))
    for m in range(2):
        net = e.population.runtime.net.load(rows[m])
        torch.testing.assert_close(pair.features(x)[3 * m : 3 * m + 3], net.features(x[3 * m : 3 * m + 3]))
        torch.testing.assert_close(pair(x)[3 * m : 3 * m + 3], net(x[3 * m : 3 * m + 3]))


def test_a_step_of_the_matrix_is_a_step_of_every_network() -> None:
    e = engine(Algorithm(), Plain(), world(Exact))
    rows, x = torch.randn(2, e.population.spec.layout.size), torch.randn(6, 6)
    pair = StackedNet(e.population.runtime.net.module, e.population.spec.layout, rows, torch.zeros_like(rows))
    rows.sub_(pair.backward(pair(x).square().view(2, -1).sum(1)), alpha=0.1)
    for m in range(2):
        net = e.population.runtime.net.load(rows[m])
        torch.testing.assert_close(pair(x)[3 * m : 3 * m + 3], net(x[3 * m : 3 * m + 3]))


def test_weights_that_a_loss_does_not_see_stay_where_they_are() -> None:
    e = engine(Algorithm(), Plain(), world(Exact))
    rows, x = torch.randn(2, e.population.spec.layout.size), torch.randn(6, 6)
    pair = StackedNet(e.population.runtime.net.module, e.population.spec.layout, rows, torch.ones_like(rows))
    g = pair.backward(pair.features(x).square().view(2, -1).sum(1))
    head = e.population.spec.layout.fields["head.weight"]
    assert (g[:, head.offset : head.end] == 0).all()
    assert (g != 0).any()


@dataclass(frozen=True)
class Crowded(Plain):
    row_independent: ClassVar[bool] = False


@dataclass(frozen=True)
class Looking(Plain):
    reads_network: ClassVar[bool] = True


@dataclass(frozen=True)
class Shaken(Plain):
    def draws(self, steps: int, batch: int, generator: torch.Generator) -> Tree:
        return {"shaken": torch.rand(steps, batch, generator=generator)}


class Doubling(Network):
    def forward(self, x: Tensor, features: bool = False) -> Tensor:
        return super().forward(2 * x, features)


class Halving(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 2


def watched() -> Network:
    net = network()
    net.head.register_forward_hook(lambda *parts: None)
    return net


def frozen() -> Network:
    net = network()
    net.rep[0].requires_grad_(False)  # type: ignore[index,operator,union-attr]
    return net


def halved() -> Network:
    net = network()
    net.halved = True
    return net


def conv() -> Network:
    rep = nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 3), nn.Flatten())
    return Network(rep, nn.Linear(8, 4))


CORRECTING = overriding("correct", kind=Exact)[0]


@pytest.mark.parametrize(
    ("method", "objective", "net", "local"),
    [
        (CORRECTING, CORRECTING.objective or Plain(), network(), LOCAL),
        (Algorithm(), Crowded(), network(), LOCAL),
        (Algorithm(), Looking(), network(), LOCAL),
        (Algorithm(), Shaken(), network(), LOCAL),
        (Algorithm(), Plain(), conv(), LOCAL),
        (Algorithm(), Plain(), network(nn.Dropout()), LOCAL),
        (Algorithm(), Plain(), network(nn.BatchNorm1d(8)), LOCAL),
        (Algorithm(), Plain(), Doubling(nn.Sequential(nn.Linear(6, 8)), nn.Linear(8, 4)), LOCAL),
        (Algorithm(), Plain(), Network(nn.Sequential(nn.Linear(6, 30000)), nn.Linear(30000, 4)), LOCAL),
        (Algorithm(), Plain(), network(), replace(LOCAL, epochs=2)),
        (Algorithm(), Plain(), Network(nn.Sequential(Halving(6, 8)), nn.Linear(8, 4)), LOCAL),
        (Algorithm(), Plain(), watched(), LOCAL),
        (Algorithm(), Plain(), frozen(), LOCAL),
        (Algorithm(), Plain(), halved(), LOCAL),
    ],
    ids=[
        *("own gradient", "crowded", "looking", "drawing", "convolution", "dropout", "buffers", "own forward"),
        *("large", "epochs", "own layer", "hook", "frozen", "half precision"),
    ],
)
def test_what_cannot_be_stacked_is_trained_one_by_one(
    method: Algorithm, objective: Objective, net: Network, local: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(worker, "train_stacked", lambda *a: asked.append(a))
    e = engine(method, objective, world(Exact), local, net=net)
    assert not e.backend.stacks
    e.round(0)
    assert asked == []


@dataclass(frozen=True)
class Stumbling(Plain):
    """Fails wherever it meets the first input of site 2."""

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        if (batch.x == world(Exact)[0].x[32]).all(1).any():
            raise RuntimeError("stumbled")
        return super().loss(net, batch)


def test_a_site_that_fails_is_named_and_does_not_take_the_others_along() -> None:
    report = engine(Algorithm(), Stumbling(), world(Exact), replace(LOCAL, steps=8)).round(0)
    assert report.failures.keys() == {2}
    assert "stumbled" in report.failures[2].reason
    assert report.losses.keys() == {0, 1, 3}


def test_neither_cores_nor_workers_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(cores: int, workers: int) -> dict[str, Tensor]:
        monkeypatch.setattr(process, "cores", lambda: cores)
        e = engine(Algorithm(), Plain(), world(Exact, (9, 12, 20, 31, 26, 14, 17)), workers=workers)
        assert e.backend.stacks
        return everything(e.go())

    runs = [trained(*counts) for counts in ((1, 1), (3, 1), (7, 1), (2, 2), (3, 3))]
    assert not [differences(runs[0], run) for run in runs[1:] if differences(runs[0], run)]


BY_ITSELF = [o for o in objectives() if o.row_independent and not o.reads_network]


@pytest.mark.parametrize("objective", BY_ITSELF, ids=lambda o: o.name)
def test_an_objective_that_says_so_takes_every_example_by_itself(objective: Objective) -> None:
    federation, _ = world(objective.labels)
    memory, site_stats = objective.init_rows(federation.labels), objective.site_stats(federation.labels)
    net = network().eval()

    def both(rows: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        remembered = {n: t[rows] for n, t in memory.items()}
        batch = Batch.of(
            federation.x[rows], federation.labels.take(rows), torch.ones(len(rows)), remembered, {}, site_stats
        )
        values, out = objective.loss(net, batch)
        with torch.no_grad():
            return values.detach(), objective.update_rows(net, batch, out)

    values, remembered = both(torch.arange(9))
    for i in range(9):
        value, own = both(torch.tensor([i]))
        torch.testing.assert_close(value[0], values[i])
        for n, t in own.items():
            torch.testing.assert_close(t[0], remembered[n][i])
