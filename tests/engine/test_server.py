"""Groups, defences, training at the server, one-shot exchanges and one pass for all sites."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.components import Defence
from imperfed.core.context import LocalStep, ServerContext, SiteContext
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Exchange, Query, Train, Updates, send_model
from imperfed.core.federation import Federation
from imperfed.core.labels import Exact
from imperfed.core.objective import Objective
from imperfed.data.oracle import Oracle
from imperfed.engine.engine import Engine
from imperfed.engine.local_training import Local
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.evaluator import Evaluator
from imperfed.testing.toy import LOCAL, OneStep, Plain, differences, engine, everything, network, world
from tests.support.methods import algorithms, averaging, overriding, shares_nothing

SCENE = world(Exact)


def own_or_plain(method: Algorithm) -> Objective:
    """The objective that a method brings, which some cannot do without."""
    return method.objective or Plain()


def alone(sites: tuple[int, ...]) -> tuple[Federation, Oracle]:
    """A federation of these sites only."""
    federation, oracle = SCENE
    rows = torch.cat([torch.arange(federation.starts[k], federation.starts[k + 1]) for k in sites])
    sizes = [federation.sizes()[k] for k in sites]
    part = replace(
        federation,
        x=federation.x[rows],
        labels=federation.labels.take(rows),
        starts=tuple(sum(sizes[:k]) for k in range(len(sizes) + 1)),
        sites=tuple(federation.sites[k] for k in sites),
        ids=tuple(federation.ids[row] for row in rows.tolist()),
    )
    return part, Oracle(None, tuple(oracle.test_x[k] for k in sites), tuple(oracle.test_y[k] for k in sites))


WITH_MEMORY = [
    method
    for method in overriding("init_site", "init_server", kind=Exact)
    if "draws" not in method.overridden  # random numbers follow a site's number, which a group changes
]


@pytest.mark.parametrize("method", [Algorithm(), *WITH_MEMORY])
@pytest.mark.parametrize("workers", [1, 2])
def test_groups_train_as_if_the_others_were_not_there(method: Algorithm, workers: int) -> None:
    local = Local(steps=1, batch=64, lr=0.05)  # all rows in one batch: batches are drawn by a site's number
    grouped = replace(SCENE[0], groups=(0, 1, 1, 0))
    both = engine(method, own_or_plain(method), (grouped, SCENE[1]), local, rounds=3, workers=workers).go()
    for group, sites in enumerate([(0, 3), (1, 2)]):
        single = engine(method, own_or_plain(method), alone(sites), local, rounds=3).go()
        for name, t in single.state.server.items():
            torch.testing.assert_close(both.state.servers[group][name], t, rtol=1e-5, atol=1e-6)
        for place, k in enumerate(sites):
            assert not differences(both.model(k), single.model(place), 1e-5)
    assert differences(both.model(0), both.model(1))
    assert both.personalised
    assert both.shared_model() == {}


def test_a_group_of_which_nobody_is_on_duty_stays_as_it_was() -> None:
    e = engine(averaging(), Plain(), (replace(SCENE[0], groups=(0, 1, 1, 1)), SCENE[1]), participation=0.25)
    before = [server["w"].clone() for server in e.state.servers]
    (k,) = e.round(0).who
    moved = [not torch.equal(a, b["w"]) for a, b in zip(before, e.state.servers, strict=True)]
    assert moved == [k == 0, k != 0]


@dataclass(frozen=True)
class Without(Defence):
    """Lets everybody through but one site, and counts the rounds."""

    name: ClassVar[str] = "without"
    site: int = 1

    def init_state(self, sites: int) -> Tree:
        return {"rounds": torch.zeros(()), "seen": torch.zeros(sites)}

    def inspect(
        self, memory: Tree, sent: Tree, updates: Updates, context: ServerContext
    ) -> tuple[Updates | None, Tree]:
        context.notes.append(f"without {context.sites[self.site]}")
        for place in updates.who:
            context.record_verdict(place, None, 1.0, place == self.site)
        kept = torch.tensor([row for row, place in enumerate(updates.who) if place != self.site])
        memory = {"rounds": memory["rounds"] + 1, "seen": memory["seen"] + 1}
        return updates.only(kept) if len(kept) else None, memory


def defended(federation: Federation, site: int, method: Algorithm | None = None) -> Engine:
    method = method or averaging()
    how = Rounds(rounds=2, workers=1)
    return Engine(method, Plain(), network(), federation, Evaluator(SCENE[1]), LOCAL, how, 0, Without(site))


def test_a_defence_keeps_an_answer_from_the_merge() -> None:
    e = defended(SCENE[0], site=2)
    report = e.round(0)
    w, n = e.backend.uploads["w"], torch.tensor([12.0, 20.0, 26.0])
    torch.testing.assert_close(e.state.server["w"], n / n.sum() @ w[[0, 1, 3]])
    assert [s.site for s in report.verdicts if s.out] == [2]
    e.round(1)
    assert e.state.server["defence/rounds"] == 2


def test_in_a_group_a_defence_sees_places_and_the_report_sites() -> None:
    e = defended(replace(SCENE[0], groups=(0, 1, 1, 0)), site=1)
    report = e.round(0)
    assert [s.site for s in report.verdicts if s.out] == [3, 2]
    assert report.notes == ["without site3", "without site2"]
    assert e.state.servers[1]["defence/seen"].tolist() == [1, 1]


def test_when_no_answer_is_let_through_the_model_stays() -> None:
    e = defended(replace(SCENE[0], groups=(0, 1, 1, 1)), site=0)
    before = e.state.servers[0]["w"].clone()
    assert any("the model stays as it was" in note for note in e.round(0).notes)
    assert torch.equal(e.state.servers[0]["w"], before)
    assert e.state.servers[0]["defence/rounds"] == 1


@dataclass(frozen=True)
class Nobody(Defence):
    """Lets nobody through, and keeps what the sites were sent and what they answered."""

    name: ClassVar[str] = "nobody"
    seen: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def inspect(
        self, memory: Tree, sent: Tree, updates: Updates, context: ServerContext
    ) -> tuple[Updates | None, Tree]:
        self.seen.append((sent["w"], updates["w"]))
        return None, memory


def sends_models(algorithm: Algorithm) -> bool:
    """Whether it says itself what sites that train receive, which may be another model for each."""
    return not shares_nothing(algorithm) and algorithm.exchanges(0)[-1].send is not send_model


def standing_still(algorithm: Algorithm) -> Algorithm:
    """Return the same algorithm with the same settings, whose local steps move nothing."""

    class Still(type(algorithm)):  # type: ignore[misc]
        def local_step(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
            loss, out = self.step_loss(objective, step)
            return loss.detach(), out

    return Still(**{one.name: getattr(algorithm, one.name) for one in fields(algorithm)})


@pytest.mark.parametrize("method", [averaging(), *filter(sends_models, algorithms(Exact))], ids=lambda a: a.name)
def test_a_defence_sees_what_each_site_started_from(method: Algorithm) -> None:
    """Sites that stand still answer with what they were sent."""
    trained = engine(method, own_or_plain(method), SCENE).go()
    still, defence, how = standing_still(method), Nobody(), Rounds(rounds=2, workers=1)
    e = Engine(still, own_or_plain(method), network(), SCENE[0], Evaluator(SCENE[1]), LOCAL, how, 0, defence)
    for name, t in e.state.flat().items():
        t.copy_(trained.state.flat()[name])
    before = {name: t.clone() for name, t in e.state.server.items()}
    for round in range(2):  # all stays as it was, and the sites are asked again
        e.round(round)
    every = [exchange for round in range(2) for exchange in method.exchanges(round)]
    queried = [exchange for exchange in every if not isinstance(exchange, Train)]
    assert queried or not differences(before, e.state.server)
    assert torch.equal(before["w"], e.state.server["w"])
    for sent, answered in defence.seen:
        assert torch.equal(sent, answered)


def test_some_methods_start_sites_from_models_of_their_own() -> None:
    """Else the test above would compare one model with itself."""
    own = [method for method in filter(sends_models, algorithms(Exact)) if "model" in method.overridden]
    assert own


@dataclass(frozen=True)
class Served(Algorithm):
    """The server's own training is all there is."""

    name: ClassVar[str] = "served"

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        done = context.train({"w": server["w"], "buffers": server["buffers"]})
        return server | {"w": done.net.w.clone()}


def test_the_server_trains_on_its_own_rows_as_a_site_would() -> None:
    federation, oracle = SCENE
    trusted = federation.trusted
    assert trusted is not None
    local = replace(LOCAL, steps=3, batch=64)
    served = engine(Served(), Plain(), SCENE, local).go()
    site = replace(federation, x=trusted.x, labels=trusted.labels, starts=(0, 24), sites=("s",), ids=("",) * 24)
    sited = engine(averaging(), Plain(), (site, Oracle(None, oracle.test_x[:1], oracle.test_y[:1])), local).go()
    torch.testing.assert_close(served.state.server["w"], sited.state.server["w"])
    with pytest.raises(UsageError, match=r"holds none; set split\.trusted"):
        engine(Served(), Plain(), (replace(federation, trusted=None), oracle)).go()


def test_with_passes_the_server_makes_as_many_steps_as_a_site_does_on_average() -> None:
    passes = replace(LOCAL, epochs=3, batch=8)  # 6, 9, 12 and 12 steps at the sites; the server's 24 rows make 9
    runs = [engine(Served(), Plain(), SCENE, local, rounds=1).go() for local in (passes, replace(LOCAL, steps=10))]
    assert torch.equal(runs[0].state.server["w"], runs[1].state.server["w"])
    bounded = replace(passes, min_steps=8, max_steps=10)  # 8, 9, 10 and 10 steps
    runs = [engine(Served(), Plain(), SCENE, local, rounds=1).go() for local in (bounded, replace(LOCAL, steps=9))]
    assert torch.equal(runs[0].state.server["w"], runs[1].state.server["w"])


@dataclass(frozen=True)
class Collecting(Algorithm):
    """Asks every site for its first inputs before round 0, as many as its number; the answers differ in shape."""

    name: ClassVar[str] = "collecting"

    def opening(self) -> tuple[Query, ...]:
        return (Query("collect", self.collect, respond=self.answer),)

    def answer(self, site: SiteContext) -> Tree:
        return {"x": site.x[: len(site.x) - 11], "s": secret(site)}

    def collect(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        context.notes.append("collected")
        secrets = torch.stack([part["s"] for part in updates.parts])
        assert (secrets == secrets[0]).all()
        return server | {"collected": torch.cat([part["x"] for part in updates.parts])}

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (Train(self.merge, send=lambda server, site: {"collected": server["collected"]}),)


def secret(site: SiteContext) -> Tensor:
    return torch.frombuffer(bytearray(site.shared_key), dtype=torch.uint8)


def test_what_is_gathered_before_round_0_reaches_the_sites_in_workers_too() -> None:
    e = engine(Collecting(), Plain(), SCENE, workers=2)
    assert len(e.state.server["collected"]) == 1 + 9 + 20 + 15
    first, second = e.round(0), e.round(1)
    e.close()
    assert first.notes == ["collected"]
    assert second.notes == []
    assert first.up - second.up == (45 * 6 * 4) + 4 * 32
    assert {"x", "s"} <= first.sent.keys()


def several_places() -> Federation:
    """The same federation, the examples stored once although three rows repeat others."""
    federation, _ = SCENE
    repeated = torch.arange(89).index_fill(0, torch.tensor([40, 41]), 3)
    repeated[80] = 15
    distinct, at = repeated.unique(return_inverse=True)
    return replace(federation, x=federation.x[distinct], at=at).check()


@pytest.mark.parametrize("federation", [SCENE[0], several_places()], ids=["each once", "at several sites"])
def test_one_pass_is_one_full_step_at_every_site(federation: Federation) -> None:
    local = Local(steps=1, batch=64, lr=0.1, momentum=0.0)
    together = engine(OneStep(), Plain(), (federation, SCENE[1]), local, rounds=3, participation=0.75).go()
    apart = engine(averaging(), Plain(), (federation, SCENE[1]), local, rounds=3, participation=0.75).go()
    torch.testing.assert_close(together.state.server["w"], apart.state.server["w"], rtol=1e-5, atol=1e-6)
    assert together.reports[1].who == apart.reports[1].who
    for k, loss in apart.reports[2].losses.items():
        assert together.reports[2].losses[k] == pytest.approx(loss, rel=1e-4)
    assert together.backend.uploads["w"].shape[0] == 0


def test_an_example_at_several_sites_is_as_good_as_a_copy() -> None:
    federation = several_places()
    copies = replace(federation, x=federation.inputs(0, 89), at=None)
    assert not differences(
        everything(engine(averaging(), Plain(), (federation, SCENE[1])).go()),
        everything(engine(averaging(), Plain(), (copies, SCENE[1])).go()),
    )


def test_no_defence_where_the_server_sees_a_sum_only() -> None:
    with pytest.raises(UsageError, match="without looks at each site's answer, and one-step only sees their sum"):
        defended(SCENE[0], 0, OneStep())
