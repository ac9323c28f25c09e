"""A private run: what leaves its sites in every backend, what it costs, when it ends, and what cannot be private."""

from __future__ import annotations

import math
import re
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from imperfed.algorithms import catalogue
from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.slowmo import SlowMo
from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Query
from imperfed.core.federation import Attribute
from imperfed.core.mechanism import more_than_weights
from imperfed.defences.krum import Krum
from imperfed.engine.backends.process import ProcessBackend
from imperfed.engine.engine import MakeBackend
from imperfed.engine.local_training import Local
from imperfed.engine.private_run import PrivacyBudget
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.evaluator import Evaluator
from imperfed.privacy.secret_sum import SecretSum
from imperfed.privacy.site_level import SiteLevel
from imperfed.testing.cases import Case, cases
from imperfed.testing.toy import LOCAL, Plain, Watched, network, one_by_one, step_by_step, world

MECHANISM = SiteLevel(clip=0.01, noise=2.0)
BACKENDS: dict[str, MakeBackend] = {"one by one": one_by_one, "a program": step_by_step, "processes": ProcessBackend}


def engine(
    mechanism: SiteLevel | None = MECHANISM,
    algorithm: Algorithm | None = None,
    make_backend: MakeBackend = one_by_one,
    case: Case | None = None,
    net: nn.Module | None = None,
    defence: Any = None,
    **rounds: Any,
) -> Watched:
    case = case or Case(algorithm or FedAvg(), Plain())
    federation, oracle = world(case.kind)
    how = Rounds(**{"rounds": 2, "workers": 1} | rounds)
    parts = (case.algorithm, case.objective, net or network(), federation, Evaluator(oracle), LOCAL, how, 0, defence)
    return Watched(*parts, make_backend, privacy=mechanism)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_sends_clipped_and_noisy_weights_and_nothing_else(backend: str) -> None:
    private = engine(make_backend=BACKENDS[backend], rounds=1)
    sent, spec = private.state.server["w"].clone(), private.population.spec
    plain = engine(None, make_backend=BACKENDS[backend], rounds=1).go().seen[0]
    arrived = private.go().seen[0]
    assert set(arrived.trees) == {"w", "buffers"}
    for k in range(4):
        expected = MECHANISM.protect(sent, plain["w"][k], spec.simulated_key(0, k, sent))
        assert torch.allclose(arrived["w"][k], expected, atol=1e-6)
    assert private.reports[0].losses == {}
    assert private.reports[0].course() == f"epsilon {MECHANISM.epsilon(1):.3g}"


def test_every_site_and_every_round_has_noise_of_its_own_and_a_seed_repeats_it() -> None:
    one, two = engine().go(), engine().go()
    assert all(torch.equal(a["w"], b["w"]) for a, b in zip(one.seen, two.seen, strict=True))
    z = torch.cat([seen["w"] for seen in one.seen])
    noise = z - z.mean(0)
    correlation = noise @ noise.T / (noise.norm(dim=1)[:, None] * noise.norm(dim=1))
    assert float((correlation - torch.eye(8)).abs().max()) < 0.6
    keys = {one.population.spec.simulated_key(round, k, z) for round in range(3) for k in range(4)}
    assert len(keys) == 12


def test_buffers_stay_as_they_were_received() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.total += x.detach().sum()
            return x

    e = engine(net=network(Counting()), rounds=1)
    before = e.state.server["buffers"].clone()
    e.go()
    assert before.numel() == 1
    assert (e.seen[0]["buffers"] == before).all()


@pytest.mark.parametrize("mechanism", [MECHANISM, SecretSum()], ids=lambda mechanism: mechanism.name)
def test_a_site_answers_without_its_loss(mechanism: Any) -> None:
    """Nor does any backend see it: a real site would send what it answers."""
    losses = {}
    for privacy in (None, mechanism):
        e = engine(privacy)
        population, exchange = e.population, e.population.spec.exchange(0, 0)
        site = population.site(1)
        update = population.runtime.respond(site, population.down(1, exchange), 0, 0)
        losses[privacy is None] = update.loss
        assert set(update.up) == {"w", "buffers"}
        e.close()
    assert losses[True] > 0
    assert losses[False] == 0


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_a_site_pays_for_the_rounds_in_which_it_is_asked() -> None:
    e = engine(rounds=6, participation=0.5).go()
    asked: Counter[int] = Counter()
    for report in e.reports:
        asked += Counter(report.who)
        assert report.epsilons == {k: MECHANISM.epsilon(asked[k]) for k in report.who}
    assert len(set(asked.values())) > 1


def test_what_is_counted_takes_no_more_memory_after_many_rounds() -> None:
    budget = PrivacyBudget(MECHANISM, lambda round: (*range(1000), 1000 + round % 2))
    tracemalloc.start()
    releases = dict(budget.releases(300))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (releases[0], releases[1000], releases[1001]) == (300, 150, 150)
    assert held < 1 << 20
    assert (budget.releases(3)[1000], budget.releases(4)[1001]) == (2, 2)


def test_a_site_that_failed_pays_as_well() -> None:
    class Failing(FedAvg):
        def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
            raise ValueError("lost")

        sends_beside_weights = ""

    e = engine(algorithm=Failing(), quorum=0.0)
    with pytest.raises(Exception, match="0 of 4 sites answered"):
        e.go()
    assert e.budget is not None
    assert e.budget.epsilons(0) == {k: MECHANISM.epsilon(1) for k in range(4)}


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_the_run_ends_before_the_round_that_would_cost_too_much(participation: float) -> None:
    most = MECHANISM.epsilon(3)
    limited = SiteLevel(clip=0.01, noise=2.0, epsilon_max=most)
    e = engine(limited, rounds=20, participation=participation, evaluate_every=50).go()
    assert e.ended
    assert max(max(report.epsilons.values()) for report in e.reports) == most
    assert e.budget is not None
    following = e.budget.releases(e.state.round + 1)
    assert max(following[k] for k in e.sample(e.state.round)) == 4
    assert e.reports[-1].personal  # evaluated, as every last round
    if participation == 1:
        assert len(e.reports) == 3


def test_without_a_limit_all_rounds_are_made() -> None:
    assert len(engine(rounds=5).go().reports) == 5


# -- what cannot be private --------------------------------------------------------------------------------------------


def first_cases() -> Iterator[Case]:
    """The first case of every algorithm that sends anything."""
    seen = {"local-only"}
    for case in cases():
        if case.algorithm.name not in seen:
            seen.add(case.algorithm.name)
            yield case


PRIVATE = [case for case in first_cases() if not more_than_weights(case.algorithm, 2)]
REFUSED = [case for case in first_cases() if more_than_weights(case.algorithm, 2)]


@pytest.mark.parametrize("case", PRIVATE, ids=lambda case: case.algorithm.name)
def test_a_private_method_sends_weights_only(case: Case) -> None:
    assert all(set(seen.trees) == {"w", "buffers"} for seen in engine(case=case).go().seen)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.algorithm.name)
def test_a_method_that_is_refused_does_send_more(case: Case) -> None:
    why = more_than_weights(case.algorithm, 2)
    with pytest.raises(UsageError, match=re.escape(f"{case.algorithm.name} {why}")):
        engine(case=case)
    if not (case.algorithm.opening() or case.algorithm.pools_data):
        sent = {name for seen in engine(None, case=case).go().seen for name, t in seen.trees.items() if t.numel()}
        assert sent - {"w"}


def test_most_methods_can_be_private() -> None:
    able = {case.algorithm.name for case in cases() if not more_than_weights(case.algorithm, 50)}
    assert {"fedavg", "fedprox", "pfedpll", "slowmo", "domo", "fedmom", "fedadc", "cfl", "fedlsr", "clipfl"} <= able
    assert not able & {"scaffold", "mime", "ifca", "fedpsl", "rofl", "fednag", "pfedmo", "pooled", "fedalc", "fedaws"}


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("scaffold", "sends the change of its control variate as well"),
        ("mime", "asks for 'gradient' in round 1"),
        ("fedalc", "before round 1"),
        ("fednoro", "asks for 'losses' in round"),
        ("pooled", "pools all rows"),
    ],
)
def test_the_reason_is_given(method: str, said: str) -> None:
    assert said in more_than_weights(catalogue()[method](), 50)


def test_a_setting_decides_where_it_decides_what_is_sent() -> None:
    assert not more_than_weights(SlowMo(buffer_strategy="maintain"), 1)
    assert "its momentum" in more_than_weights(SlowMo(buffer_strategy="average"), 1)


@dataclass(frozen=True)
class Talkative(FedAvg):
    """It sends more than it says."""

    name: ClassVar[str] = "talkative"
    sends_beside_weights: ClassVar[str] = ""  # type: ignore[misc]

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        return {"rows": torch.ones(3)}, done.memory


@pytest.mark.parametrize("backend", ["one by one", "processes"])
def test_what_a_method_did_not_say_does_not_leave_the_site(backend: str) -> None:
    with pytest.raises(Exception, match=r"sends its weights only, and not rows"):
        engine(algorithm=Talkative(), make_backend=BACKENDS[backend]).go()


@dataclass(frozen=True)
class Asking(Krum):
    """A defence that asks the sites once."""

    name: ClassVar[str] = "asking"

    def opening(self, attribute: Attribute | None) -> tuple[Query, ...]:
        return (Query("income", lambda server, updates, context: server, respond=lambda site: {}),)


def test_statistics_of_rows_and_questions_are_refused() -> None:
    with pytest.raises(UsageError, match=r"batch normalisation \(rep.1.running_var\)"):
        engine(net=network(nn.BatchNorm1d(8)))
    with pytest.raises(UsageError, match="for which the defence asks sites"):
        engine(defence=Asking(adversaries=0))
    assert engine(defence=Krum(adversaries=0)).go().reports


def test_a_question_is_not_answered_even_if_it_comes() -> None:
    spec = engine(algorithm=FedAvg()).population.spec
    asking: Callable[[], Algorithm] = catalogue()["mime"]
    with pytest.raises(UsageError, match="sites do not answer 'gradient'"):
        type(spec)(asking(), Plain(), spec.layout, Local(), 0, privacy=MECHANISM).exchange(0, 0)


def test_losses_are_known_without_privacy() -> None:
    report = engine(None).go().reports[0]
    assert set(report.losses) == {0, 1, 2, 3}
    assert report.epsilons == {}
    assert report.course() == f"loss {math.fsum(report.losses.values()) / 4:.3f}"
