"""Who takes part, what is counted, what is merged and what is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext, SiteContext
from imperfed.core.errors import ImperfedError
from imperfed.core.exchange import Exchange, Query, Train, Updates
from imperfed.core.labels import Exact
from imperfed.core.network import Network
from imperfed.engine.backends.base import Reply
from imperfed.engine.backends.sequential import SequentialBackend
from imperfed.engine.population import Scores
from imperfed.engine.site import OPENING
from imperfed.testing.toy import LOCAL, SIZES, Plain, differences, engine, everything, network, world

SCENE = world(Exact)
WEIGHTS = 6 * 8 + 8 + 8 * 4 + 4


@dataclass(frozen=True)
class PersonalHead(Algorithm):
    name: ClassVar[str] = "personal-head"

    def is_personal(self, name: str) -> bool:
        return name.startswith("head.")


@dataclass(frozen=True)
class Gathered(Algorithm):
    name: ClassVar[str] = "gathered"
    pools_data: ClassVar[bool] = True


@dataclass(frozen=True)
class Careless(Algorithm):
    """Spoils what the server is to remember."""

    name: ClassVar[str] = "careless"
    how: str = ""

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        new = super().merge(server, updates, context)
        match self.how:
            case "nan":
                new["w"] = new["w"] * torch.nan
            case "shape":
                new["w"] = new["w"][1:]
            case "undeclared":
                new["more"] = torch.zeros(1)
            case "missing":
                del new["buffers"]
            case "nothing":
                return None  # type: ignore[return-value]  # as when a method forgets its return
        return new


@dataclass(frozen=True)
class Asking(Algorithm):
    """A question before training, whose answers are called what the model is called."""

    name: ClassVar[str] = "asking"

    def init_server(self, w: torch.Tensor, sites: int) -> Tree:
        return {"asked": torch.zeros_like(w)}

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return Query("ask", self.hear, respond=self.answer), Train(self.merge)

    def answer(self, site: SiteContext) -> Tree:
        return {"w": site.down["w"] + site.x.mean(), "size": torch.tensor(float(len(site.x)))}

    def hear(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        return server | {"asked": updates["w"].mean(0)}


@pytest.mark.parametrize(("share", "count"), [(1.0, 4), (0.5, 2), (0.01, 1)])
def test_so_many_sites_are_on_duty_each_round_drawn_by_the_seed(share: float, count: int) -> None:
    e = engine(Algorithm(), Plain(), SCENE, participation=share)
    drawn = [e.sample(round) for round in range(40)]
    assert all(len(set(who)) == count and who == tuple(sorted(who)) for who in drawn)
    assert {k for who in drawn for k in who} == {0, 1, 2, 3}
    assert drawn == [e.sample(round) for round in range(40)]
    other = engine(Algorithm(), Plain(), SCENE, participation=share, seed=1)
    assert (drawn != [other.sample(round) for round in range(40)]) == (share < 1)


def test_sites_not_on_duty_are_untouched() -> None:
    e = engine(PersonalHead(), Plain(), SCENE, participation=0.5)
    before = everything(e)
    who = e.round(0).who
    starts = SCENE[0].starts
    for k in range(4):
        same_weights = torch.equal(e.state.personal[k], before["personal"][k])
        rows = slice(starts[k], starts[k + 1])
        same_rows = torch.equal(e.state.rows["p"][rows], before["rows/p"][rows])
        assert same_weights == same_rows == (k not in who)


@pytest.mark.parametrize("algorithm", [Algorithm(), PersonalHead()], ids=["all", "representation"])
def test_bytes_are_counted(algorithm: Algorithm) -> None:
    report = engine(algorithm, Plain(), SCENE, participation=0.75, rounds=1).go().reports[0]
    travels = WEIGHTS if type(algorithm) is Algorithm else 6 * 8 + 8
    assert report.down == report.up == 3 * travels * 4
    assert report.sent == {"w": (travels,)}


def test_bytes_of_several_exchanges_and_buffers_add_up() -> None:
    report = engine(Asking(), Plain(), SCENE, net=network(nn.BatchNorm1d(8)), rounds=1).go().reports[0]
    weights, buffers = WEIGHTS + 16, 16
    assert report.down == 4 * 4 * 2 * (weights + buffers)
    assert report.up == 4 * 4 * ((weights + 1) + (weights + buffers))
    assert report.sent == {"w": (weights,), "size": (), "buffers": (buffers,)}


def test_an_answer_that_is_no_training_may_be_called_w() -> None:
    e = engine(Asking(), Plain(), SCENE, rounds=1)
    w = e.state.server["w"].clone()
    e.go()
    means = [SCENE[0].x[a:b].mean() for a, b in zip(SCENE[0].starts, SCENE[0].starts[1:], strict=False)]
    assert torch.allclose(e.state.server["asked"], w + torch.stack(means).mean(), atol=1e-6)
    assert e.seen[0]["size"].tolist() == list(map(float, SIZES))


def test_gathering_makes_one_site_of_all_with_the_steps_of_all() -> None:
    e = engine(Gathered(), Plain(), SCENE, rounds=1)
    assert e.population.sizes == [sum(SIZES)]
    assert e.population.spec.local.steps == 4 * LOCAL.steps
    e.go()
    assert e.reports[0].who == (0,)
    assert set(e.reports[0].personal) == {0, 1, 2, 3}  # still judged on every site's own test set
    assert not differences(e.model(0), e.model(3))


@pytest.mark.parametrize("how", ["nan", "shape", "undeclared", "missing", "nothing"])
def test_a_server_that_diverges_ends_the_run(how: str) -> None:
    with pytest.raises(ImperfedError) as caught:
        engine(Careless(how=how), Plain(), SCENE, rounds=1).go()
    told = {
        "undeclared": "Careless: the names in the server's memory have changed: more; every name is there",
        "missing": "memory have changed: buffers",
        "nothing": "Careless: after an exchange the server's memory is a NoneType; return its new memory",
    }
    assert told.get(how, "the merged 'w'") in str(caught.value)
    assert engine(Careless(), Plain(), SCENE).go().state.round == 2


def test_running_statistics_are_averaged_by_the_merge_weights() -> None:
    e = engine(Algorithm(), Plain(), SCENE, net=network(nn.BatchNorm1d(8)), rounds=1)
    fresh = e.state.server["buffers"].clone()
    assert fresh.tolist() == [0.0] * 8 + [1.0] * 8
    e.go()
    n = torch.tensor(SIZES, dtype=torch.float64)
    mean = (n / n.sum()) @ e.seen[0]["buffers"].double()
    assert torch.allclose(e.state.server["buffers"].double(), mean, atol=1e-6)
    assert not torch.allclose(e.seen[0]["buffers"][0], e.seen[0]["buffers"][1], atol=1e-2)
    assert torch.equal(e.model(2)["rep.1.running_var"], e.state.server["buffers"][8:])


def test_statistics_of_a_layer_that_stays_are_its_sites_own() -> None:
    @dataclass(frozen=True)
    class PersonalNorm(Algorithm):
        name: ClassVar[str] = "personal-norm"

        def is_personal(self, name: str) -> bool:
            return name.startswith("rep.1.")

    e = engine(PersonalNorm(), Plain(), SCENE, net=network(nn.BatchNorm1d(8))).go()
    assert e.state.server["buffers"].numel() == 0
    assert e.state.personal.shape == (4, 8 + 8 + 8 + 8)
    for name in ("rep.1.weight", "rep.1.running_mean", "rep.1.running_var"):
        of_sites = torch.stack([e.model(k)[name] for k in range(4)])
        assert of_sites.std(0).min() > 1e-4
        assert of_sites.abs().min() > 1e-4


def test_rounds_are_judged_by_some_sites_and_the_run_by_all() -> None:
    sites = 30
    e = engine(Algorithm(), Plain(), world(Exact, (4,) * sites), evaluate_sites=5).go()
    first, last = (set(report.personal) for report in e.reports)
    assert first == last  # drawn once, so that rounds can be compared
    assert len(first) == 5
    everybody = e.evaluate()[0]
    assert set(everybody) == set(range(sites))
    assert {k: everybody[k] for k in last} == e.reports[-1].personal


def test_figures_are_taken_once_after_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    e = engine(Algorithm(), Plain(), SCENE, rounds=3, evaluate_every=2)
    taken, take = list[int](), e.backend.evaluate

    def counted(ahead: bool, sites: Sequence[int] | None) -> Any:
        taken.append(e.state.round)
        return take(ahead, sites)

    monkeypatch.setattr(e.backend, "evaluate", counted)
    e.go()
    assert e.evaluate() == (e.reports[-1].personal, e.reports[-1].common)
    assert taken == [2, 3]
    assert e.reports[1].personal != e.reports[2].personal


def test_judging_is_done_in_evaluation_mode_even_before_any_training() -> None:
    net = network(nn.BatchNorm1d(8), nn.Dropout(0.5))
    e = engine(Algorithm(), Plain(), SCENE, net=net)
    before = everything(e)
    figures, _ = e.evaluate()
    oracle = SCENE[1]
    for k, (x, y) in enumerate(zip(oracle.test_x, oracle.test_y, strict=True)):
        assert figures[k] == {"accuracy": (float((net.eval()(x).argmax(1) == y).double().mean()), 40)}
    assert not differences(everything(e), before)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(8), nn.Dropout(0.3)], ids=["batchnorm", "dropout"])
def test_layers_with_a_mode_give_the_same_run_whoever_works(layer: nn.Module) -> None:
    runs: list[tuple[Tree, list[dict[int, Scores]]]] = []
    for workers in (1, 2, 1):
        torch.manual_seed(len(runs))  # the run must not depend on torch's own generator
        e = engine(Algorithm(), Plain(), SCENE, net=network(layer), workers=workers, participation=0.5).go()
        runs.append((everything(e), [report.personal for report in e.reports]))
    for state, figures in runs[1:]:
        assert not differences(state, runs[0][0])
        assert figures == runs[0][1]


def test_an_engine_leaves_the_network_it_was_given_as_it_was() -> None:
    @dataclass(frozen=True)
    class Deeper(Algorithm):
        name: ClassVar[str] = "deeper"

        def build(self, network: Network) -> Network:
            return network.insert_before_head("extra", lambda p: nn.Linear(p, p))

    net = network()
    weights = {name: p.clone() for name, p in net.named_parameters()}
    first = engine(Deeper(), Plain(), SCENE, net=net).go()
    second = engine(Deeper(), Plain(), SCENE, net=net).go()
    assert not differences(dict(net.named_parameters()), weights)
    assert net.between == ()
    assert not differences(everything(first), everything(second))


def test_evaluation_comes_as_often_as_asked_and_at_the_end() -> None:
    e = engine(Algorithm(), Plain(), SCENE, rounds=5, evaluate_every=2).go()
    assert [bool(report.personal) for report in e.reports] == [False, True, False, True, True]


class Drawing(Algorithm):
    """A method that asks for random numbers before round 0, as layers with dropout would draw them."""

    name = "drawing"

    def opening(self) -> tuple[Query, ...]:
        return (Query("draw", lambda server, updates, context: server, respond=lambda site: {"r": torch.rand(3)}),)


def test_exchanges_before_round_0_are_seeded_by_site_as_real_sites_are() -> None:
    first, again = (engine(Drawing(), Plain(), world(Exact)).backend.ask(OPENING, 0, range(4)) for _ in range(2))
    draws = [reply.up["r"].tolist() for reply in first.values() if isinstance(reply, Reply)]
    assert draws == [reply.up["r"].tolist() for reply in again.values() if isinstance(reply, Reply)]
    assert len({tuple(draw) for draw in draws}) == 4


@dataclass(frozen=True)
class Unanswerable(Algorithm):
    """Asks something before round 0 that no site can answer."""

    name: ClassVar[str] = "unanswerable"

    def opening(self) -> tuple[Query, ...]:
        return (Query("riddle", lambda server, updates, context: server, respond=self.despair),)

    def despair(self, site: SiteContext) -> Tree:
        raise RuntimeError("nobody knows")


def test_a_run_that_cannot_begin_shuts_its_backend_down() -> None:
    closed = []

    class Closing(SequentialBackend):
        def close(self) -> None:
            closed.append(self)

    with pytest.raises(RuntimeError, match="nobody knows"):
        engine(Unanswerable(), Plain(), SCENE, make_backend=lambda population, on_duty, workers: Closing(population))
    assert len(closed) == 1
