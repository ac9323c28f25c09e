"""Sites that fail: what is refused, who is named, what stays as it was, and when a run ends."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult, LocalStep, SiteContext, SiteSetup
from imperfed.core.errors import ImperfedError, QuorumError
from imperfed.core.exchange import Exchange, Query, Train
from imperfed.core.labels import Exact
from imperfed.core.objective import Objective
from imperfed.engine.backends.task_pool import ProcessPool
from imperfed.engine.failures import Crashed, Failure, Misshapen, NotFinite, named_failures
from imperfed.engine.schedule import Rounds
from imperfed.testing.toy import Plain, Watched, differences, engine, everything, network, world

SCENE = world(Exact)


@dataclass(frozen=True)
class Faulty(Algorithm):
    """FedAvg with a personal head and a memory, in which some sites misbehave during their third local step."""

    name: ClassVar[str] = "faulty"
    how: str = ""
    sites: tuple[int, ...] = ()
    log: Path | None = None
    """One line an attempt."""
    times: int = 99

    def is_personal(self, name: str) -> bool:
        return name.startswith("head.")

    def init_site(self, site: SiteSetup) -> Tree:
        return {"k": torch.tensor(float(site.index)), "sum": torch.zeros(2)}

    def local_step(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        result = super().local_step(objective, step)
        step.opt_state["steps"] = step.opt_state.get("steps", torch.zeros(())) + 1
        if int(step.memory["k"]) in self.sites and step.opt_state["steps"] == 3 and self.due():
            step.opt_state["bad"] = torch.ones(())
            if self.how == "raise":
                raise RuntimeError("the disk is full")
            if self.how == "nan":
                step.w[0] = torch.nan
            if self.how == "kill" and multiprocessing.parent_process():
                os.kill(os.getpid(), signal.SIGKILL)
        return result

    def due(self) -> bool:
        if self.log is None:
            return True
        attempts = len(self.log.read_text().splitlines()) if self.log.exists() else 0
        with self.log.open("a") as f:
            f.write("attempt\n")
        return attempts < self.times

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        memory = done.memory | {"sum": done.memory["sum"] + 1}
        extra = {"note": torch.tensor([1.0, 2.0])}
        if "bad" in done.opt_state:
            match self.how:
                case "shape":
                    extra["w"] = torch.zeros(3)
                case "dtype":
                    extra["w"] = done.net.w[:56].double()
                case "extra":
                    extra["note"] = torch.zeros(5)
                case "missing":
                    extra = {}
                case "nan extra":
                    extra["note"] = torch.tensor([1.0, torch.nan])
                case "nan head":
                    done.net.w[-1] = torch.nan
                case "nan twin":  # the memory of the same name is fine
                    extra["sum"] = torch.tensor([torch.nan, 0.0])
                case "memory":
                    memory["sum"] = torch.zeros(3)
                case "unopened":
                    memory["more"] = torch.zeros(1)
        return extra, memory


def faulty(how: str, sites: tuple[int, ...] = (1,), log: Path | None = None, times: int = 99, **rounds: Any) -> Watched:
    return engine(Faulty(how=how, sites=sites, log=log, times=times), Plain(), SCENE, **rounds)


def own(e: Watched, site: int) -> Tree:
    """What one site keeps for itself."""
    a, b = SCENE[0].starts[site], SCENE[0].starts[site + 1]
    kept = {name: t[site].clone() for name, t in e.state.memory.items()}
    return kept | {"personal": e.state.personal[site].clone(), "p": e.state.rows["p"][a:b].clone()}


WAYS: dict[str, tuple[type[Failure], str]] = {
    "raise": (Crashed, "RuntimeError: the disk is full"),
    "nan": (NotFinite, "'w' is not finite"),
    "shape": (Misshapen, r"'w' has shape \(3,\), expected \(56,\)"),
    "dtype": (Misshapen, r"'w' holds torch.float64, expected torch.float32"),
    "nan extra": (NotFinite, "'note' is not finite"),
    "nan head": (NotFinite, "'personal weights' is not finite"),
    "memory": (Misshapen, r"'sum' has shape \(3,\), expected \(2,\)"),
    "unopened": (Misshapen, "'more' is not in the memory that init_site returned"),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("how", WAYS)
def test_a_site_that_fails_is_left_out_named_and_unchanged(how: str, workers: int) -> None:
    e = faulty(how, rounds=1, workers=workers)
    before = own(e, 1)
    e.go()
    (report,) = e.reports
    assert report.failures.keys() == {1}
    kind, reason = WAYS[how]
    assert type(report.failures[1]) is kind
    assert re.search(reason, report.failures[1].reason)
    assert torch.equal(e.seen[0].n, torch.tensor([12.0, 31.0, 26.0]))
    assert e.seen[0].who == (0, 2, 3)
    assert set(report.losses) == {0, 2, 3}
    assert not differences(own(e, 1), before)
    untrained = faulty("")
    assert all(differences(own(e, k), own(untrained, k)) == ["sum", "personal", "p"] for k in (0, 2, 3))


@pytest.mark.parametrize("how", WAYS)
def test_stop_ends_the_run_and_says_who_and_why(how: str) -> None:
    with pytest.raises(ImperfedError, match=f"round 1: site1: .*{WAYS[how][1]}") as caught:
        faulty(how, on_failure="stop").go()
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("how", ["extra", "missing"])
def test_an_answer_unlike_the_others_is_refused(how: str) -> None:
    e = faulty(how, rounds=1).go()
    assert "differ" in e.reports[0].failures[1].reason
    assert e.seen[0].who == (0, 2, 3)
    with pytest.raises(ImperfedError, match="site1"):
        faulty(how, on_failure="stop").go()


def test_a_nan_hides_behind_no_memory_of_the_same_name() -> None:
    e = faulty("nan twin", rounds=1).go()
    assert list(e.reports[0].failures) == [1]


@pytest.mark.parametrize("how", ["raise", "nan", "shape"])
def test_retry_asks_again_and_then_nothing_was_lost(how: str, tmp_path: Path) -> None:
    e = faulty(how, log=tmp_path / "log", times=2, on_failure="retry").go()
    assert [report.failures for report in e.reports] == [{}, {}]
    assert not differences(everything(e), everything(faulty("").go()))


@pytest.mark.parametrize("how", ["raise", "nan", "shape"])
def test_retry_gives_up(how: str, tmp_path: Path) -> None:
    e = faulty(how, log=tmp_path / "log", rounds=1, on_failure="retry", retries=3).go()
    assert list(e.reports[0].failures) == [1]
    assert len((tmp_path / "log").read_text().splitlines()) == 1 + 3


@pytest.mark.parametrize("how", ["raise", "nan", "shape"])
def test_below_the_quorum_the_run_ends(how: str) -> None:
    with pytest.raises(QuorumError, match=r"1 of 4 .* below the quorum 0\.5.*site0.*site1.*site3") as caught:
        faulty(how, sites=(0, 1, 3)).go()
    assert caught.value.exit_code == (5 if how == "nan" else 4)
    assert ("the run has diverged" in str(caught.value)) == (how == "nan")
    assert faulty(how, sites=(0, 1), rounds=1).go().reports[0].failures.keys() == {0, 1}
    with pytest.raises(QuorumError):
        faulty(how, sites=(0, 1), quorum=0.51).go()
    with pytest.raises(QuorumError, match="0 of 4"):
        faulty(how, sites=(0, 1, 2, 3), quorum=0.0).go()


@pytest.mark.parametrize(
    ("quorum", "asked", "needed"),
    [(0.55, 100, 55), (0.07, 100, 7), (0.5, 3, 2), (0.0, 9, 1), (1.0, 9, 9), (0.51, 100, 51)],
)
def test_a_share_of_the_sites_is_not_rounded_up_by_its_last_bit(quorum: float, asked: int, needed: int) -> None:
    assert Rounds(quorum=quorum).quorum_of(asked) == needed


def test_answers_unlike_the_others_count_against_the_quorum() -> None:
    with pytest.raises(QuorumError, match="3 of 4"):
        faulty("extra", quorum=1.0).go()


def test_a_killed_worker_is_named_and_replaced(tmp_path: Path) -> None:
    e = faulty("kill", log=tmp_path / "log", times=1, rounds=3, workers=2)
    assert isinstance(e.backend.pool, ProcessPool)
    before = {worker.process.pid for worker in e.backend.pool.workers}
    first = e.round(0)
    after = {worker.process.pid for worker in e.backend.pool.workers}
    assert list(first.failures) == [1]
    assert "its worker process ended with code -9" in first.failures[1].reason
    assert len(after - before) == 1
    assert e.round(1).failures == {}
    e.close()
    assert not any(worker.process.is_alive() for worker in e.backend.pool.workers)


def test_a_worker_killed_between_rounds_costs_nothing() -> None:
    e = faulty("", workers=2)
    assert isinstance(e.backend.pool, ProcessPool)
    e.round(0)
    victim = e.backend.pool.workers[0].process
    victim.kill()
    victim.join()
    assert e.round(1).failures == {}
    calm = faulty("")
    calm.round(0)
    calm.round(1)
    assert not differences(everything(e), everything(calm))
    e.close()


@dataclass(frozen=True)
class Doubting(Algorithm):
    """A question before training, which the smallest site cannot answer."""

    name: ClassVar[str] = "doubting"

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return Query("ask", lambda server, updates, context: server, respond=self.answer), Train(self.merge)

    def answer(self, site: SiteContext) -> Tree:
        return {"n": torch.tensor(0.0 if len(site.x) > 12 else torch.nan)}


def test_a_site_that_fails_in_one_exchange_is_not_asked_in_the_next() -> None:
    e = engine(Doubting(), Plain(), SCENE, rounds=2).go()
    assert [u.who for u in e.seen] == [(1, 2, 3)] * 4  # asked again in the next round
    assert [report.failures for report in e.reports] == [
        {0: NotFinite("its answer was refused: 'n' is not finite")}
    ] * 2
    with pytest.raises(QuorumError, match="3 of 4"):
        engine(Doubting(), Plain(), SCENE, quorum=0.8).go()


def test_a_site_that_fails_leaves_no_training_mode_behind() -> None:
    net = network(nn.Dropout(0.5))
    e = engine(Faulty(how="raise", sites=(0,)), Plain(), SCENE, net=net, rounds=1).go()  # the smallest is asked last
    assert e.reports[0].failures.keys() == {0}
    assert e.backend.evaluate() == e.backend.evaluate()


def test_a_failure_is_no_reason_to_stop_the_others_work() -> None:
    """The round goes on as if the site had not been asked."""
    e = faulty("raise", rounds=1).go()
    honest = faulty("", rounds=1).go()
    rows = [honest.seen[0].who.index(k) for k in (0, 2, 3)]
    assert torch.equal(e.seen[0]["w"], honest.seen[0]["w"][rows])
    n = torch.tensor([12.0, 31.0, 26.0])
    assert torch.allclose(e.state.server["w"], (n / n.sum()) @ honest.seen[0]["w"][rows], atol=1e-7)


def test_a_reason_that_several_sites_share_is_said_once() -> None:
    names = [f"site-{k}" for k in range(9)]
    failures = {k: Crashed("no such column") for k in (0, 2, 3, 4, 5, 6, 8)} | {1: Misshapen("'w' is missing")}
    assert named_failures(failures, names) == (
        "site-0, site-2, site-3, site-4, site-5 and 2 more: no such column; site-1: 'w' is missing"
    )
