"""Every clause of the contract, against a method made to break it: none of them passes by doing nothing."""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Batch, Tree
from imperfed.core.context import LocalResult, LocalStep, ServerContext, SiteContext, SiteSetup
from imperfed.core.errors import ImperfedError
from imperfed.core.exchange import Exchange, Query, Train, Updates
from imperfed.core.objective import Objective
from imperfed.engine.engine import Engine
from imperfed.testing import CLAUSES, clauses, held_out_clause, mishaps
from imperfed.testing.cases import Case
from imperfed.testing.toy import Plain
from tests.support.methods import averaging


class Nudged(Plain):
    """An objective whose loss is off by what `nudge` says."""

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        values, out = super().loss(net, batch)
        return values * self.nudge(batch), out

    def nudge(self, batch: Batch) -> Any:
        raise NotImplementedError


class Counting(Nudged):
    """Remembers the number of its steps outside of all declared memory."""

    steps: ClassVar[Any] = itertools.count(1)

    def nudge(self, batch: Batch) -> Any:
        return next(self.steps)


class ByProcess(Nudged):
    """Depends on the process it runs in."""

    home: ClassVar[int] = os.getpid()

    def nudge(self, batch: Batch) -> Any:
        return 1 if os.getpid() == self.home else 2


class Peeping(Nudged):
    """Looks for the truth in the engine that called it."""

    def nudge(self, batch: Batch) -> Any:
        frame = inspect.currentframe()
        while frame and not isinstance(frame.f_locals.get("self"), Engine):
            frame = frame.f_back
        return float(frame.f_locals["self"].population.evaluator.oracle.test_x[0].sum()) if frame else 1


class Gossiping(Nudged):
    """A site's steps depend on the last batch of whoever came before it."""

    heard: ClassVar[list[float]] = [1.0]

    def nudge(self, batch: Batch) -> Any:
        self.heard.append(float(batch.x.mean()))
        return self.heard[-2]


class MeanOfAll(Plain):
    """The mean over a batch's rows, padding included."""

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        values, out = super().loss(net, batch)
        return values.mean().expand(len(values)), out


class Flat(Nudged):
    """Nothing to learn from."""

    def nudge(self, batch: Batch) -> Any:
        return 0.0


class Forgetful(Plain):
    """Remembers nothing of its examples."""

    def init_rows(self, labels: Any) -> Tree:
        return {}


class Sure(Plain):
    def infer_labels(self, logits: Tensor, labels: Any, rows: Tree) -> Tensor:
        return logits


class Asking(Nudged):
    """Waits for a value."""

    def nudge(self, batch: Batch) -> Any:
        return batch.real.sum().item()


class Branching(Nudged):
    def nudge(self, batch: Batch) -> Any:
        return 1.0 if batch.x.sum() > 0 else 2.0


class Masking(Nudged):
    """Makes a shape of values."""

    def nudge(self, batch: Batch) -> Any:
        return batch.x[batch.real > 0].mean()


class Scribbling(Algorithm):
    """Writes into its memory, which is the site's, before its answer is accepted."""

    name = "scribbling"

    def init_site(self, site: SiteSetup) -> Tree:
        return {"steps": torch.zeros(1)}

    def local_step(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        step.memory["steps"].add_(1)
        return super().local_step(objective, step)


class Overwriting(Algorithm):
    """Normalises its data where they lie."""

    name = "overwriting"

    def prepare(self, site: SiteContext) -> Tree:
        site.x.div_(site.x.abs().max())
        return site.down


class FirstOnly(Algorithm):
    name = "first-only"

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        return server | {"w": updates["w"][0]}


class Spread(Algorithm):
    """Divides by the number of the other sites."""

    name = "spread"

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        return server | {"w": updates["w"].sum(0) / (len(updates.who) - 1)}


@dataclass(frozen=True)
class Telling(Algorithm):
    """Sends what must not leave a site."""

    name = "telling"
    what: str = ""

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return Query("tell", lambda server, updates, context: server, respond=self.tell), Train(self.merge)

    def tell(self, site: SiteContext) -> Tree:
        match self.what:
            case "row":
                return {"t": torch.cat([torch.zeros(3), site.x[4], torch.zeros(2)])}
            case "labels":
                return {"t": site.labels.values[2:17].float()}
            case "beliefs":
                return {"t": site.rows["p"][5:13]}
            case _:
                return {"t": torch.zeros(len(site.x))}


class TellingBatch(Algorithm):
    """Sends the labels of its first batch, in the order they were visited."""

    name = "telling-batch"

    def prepare(self, site: SiteContext) -> Tree:
        return site.down | {"t": site.batch.labels.values.float()}

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        return {"t": done.down["t"]}, done.memory


@dataclass(frozen=True)
class Hoarding(Algorithm):
    """Keeps things in itself."""

    name = "hoarding"
    seen: list[int] = field(default_factory=list)

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        self.seen.append(context.round)
        return super().merge(server, updates, context)


class Reckless(Algorithm):
    """Answers with something else than it trained, so that a broken site looks well."""

    name = "reckless"

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        done.net.w.nan_to_num_()
        return {}, done.memory


class Unstoppable(Algorithm):
    """Never trains where anybody could see it: no site of it can fail."""

    name = "unstoppable"

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (Query("nothing", lambda server, *_: server, respond=lambda site: {"t": torch.zeros(1)}),)


BREACHES: list[tuple[Callable[[Case], None], Case]] = [
    (clauses.same_seed_same_bits, Case(averaging(), Counting())),
    (clauses.workers_make_no_difference, Case(averaging(), ByProcess())),
    (clauses.one_program_for_all_makes_no_difference, Case(averaging(), MeanOfAll())),
    (clauses.resuming_makes_no_difference, Case(averaging(), Counting())),
    (held_out_clause.the_best_round_is_found_again, Case(averaging(), Counting())),
    (clauses.truth_makes_no_difference, Case(averaging(), Peeping())),
    (clauses.inputs_are_not_mutated, Case(Overwriting(), Plain())),
    (clauses.nothing_changes_before_an_answer_is_accepted, Case(Scribbling(), Plain())),
    (clauses.padding_makes_no_difference, Case(averaging(), MeanOfAll())),
    (clauses.order_of_answers_makes_no_difference, Case(FirstOnly(), Plain())),
    (clauses.one_client_works, Case(Spread(), Plain())),
    (clauses.sites_do_not_see_each_other, Case(averaging(), Gossiping())),
    (clauses.uploads_hold_no_rows, Case(Telling(what="row"), Plain())),
    (clauses.uploads_hold_no_rows, Case(Telling(what="labels"), Plain())),
    (clauses.uploads_hold_no_rows, Case(Telling(what="beliefs"), Plain())),
    (clauses.uploads_hold_no_rows, Case(Telling(what="size"), Plain())),
    (clauses.uploads_hold_no_rows, Case(TellingBatch(), Plain())),
    (clauses.it_learns, Case(averaging(), Flat())),
    (clauses.beliefs_are_probabilities, Case(averaging(), Sure())),
    (clauses.methods_hold_nothing_but_their_settings, Case(Hoarding(), Plain())),
    (mishaps.a_site_that_drops_out_is_left_out, Case(Scribbling(), Plain())),
    (mishaps.nan_is_refused, Case(Reckless(), Forgetful())),
    (mishaps.wrong_shapes_are_refused, Case(Unstoppable(), Plain())),
    (mishaps.the_quorum_holds, Case(Unstoppable(), Plain())),
    (mishaps.local_steps_are_static, Case(averaging(), Asking())),
    (mishaps.local_steps_are_static, Case(averaging(), Branching())),
    (mishaps.local_steps_are_static, Case(averaging(), Masking())),
]
BREACH = (
    AssertionError,
    ImperfedError,
    DataDependentOutputException,
    DynamicOutputShapeException,
)


@pytest.mark.parametrize(("clause", "case"), BREACHES, ids=lambda part: getattr(part, "__name__", str(part)))
def test_a_breach_is_found(clause: Callable[[Case], None], case: Case) -> None:
    with pytest.raises(BREACH):
        clause(case)


def test_every_clause_can_fail() -> None:
    assert {clause for clause, _ in BREACHES} == set(CLAUSES)
