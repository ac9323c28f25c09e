"""The clauses about sites that fail, and about steps that could not be captured for a device."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensor, FakeTensorMode

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Batch, Tree
from imperfed.core.context import LocalResult, LocalStep
from imperfed.core.errors import QuorumError
from imperfed.core.network import Layout, Net
from imperfed.core.objective import Objective
from imperfed.engine.local_training import batches, plan
from imperfed.engine.seeds import generator
from imperfed.testing.cases import Case
from imperfed.testing.clauses import Scene, later, own, received, start
from imperfed.testing.toy import Watched, differences, network, world

MARK = 77.0
"""A feature of this value makes trouble, wherever a broken algorithm meets it."""


def broken(algorithm: Algorithm, how: str) -> Algorithm:
    """Return the same algorithm with the same settings, in which a site that trains on a marked row misbehaves."""

    class Broken(type(algorithm)):  # type: ignore[misc]
        def local_step(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
            result: tuple[Tensor, Any] = super().local_step(objective, step)
            if (step.batch.x == MARK).any():
                step.opt_state["met"] = torch.ones(())
                if how == "raise":
                    raise RuntimeError("the cable was pulled")
                if how == "nan":
                    step.w.fill_(torch.nan)
            return result

        def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
            extra, memory = super().reply(done)
            wrong = {"w": torch.zeros(done.net.layout.shared + 1)}
            return (extra | wrong if how == "shape" and "met" in done.opt_state else extra), memory

    return Broken(**{field.name: getattr(algorithm, field.name) for field in fields(algorithm)})


def marked(data: Scene, *sites: int) -> Scene:
    """Return the scene with one marked row at each of these sites."""
    federation, oracle = data
    x = federation.x.clone()
    x[[federation.starts[k] for k in sites], 0] = MARK
    return replace(federation, x=x), oracle


def mishap(case: Case, how: str, *sites: int) -> tuple[Watched, Watched]:
    """Return the engine after a good round, and one whose next round has some sites misbehave."""
    data = world(case.kind)
    before = start(case, data, participation=1.0).go(stop_after=1)
    worse = Case(broken(case.algorithm, how), case.objective)
    return before, later(worse, marked(data, *sites), before, rounds=2, participation=1.0)


def assert_left_out(case: Case, how: str, reason: str) -> None:
    """Check that the site that misbehaves, and no other, is left out, and keeps the memory it had."""
    before, after = mishap(case, how, 1)
    if case.algorithm.pools_data:
        assert reason in no_quorum(after)
    else:
        after.go()
        (report,) = after.reports
        assert report.failures.keys() == {1}
        assert reason in report.failures[1].reason
        assert after.seen[-1].who == (0, 2, 3)
        assert all(torch.isfinite(t).all() for t in after.state.flat().values())
    lost = 0 if case.algorithm.pools_data else 1
    assert not differences(own(after, lost), own(before, lost))


def no_quorum(e: Watched) -> str:
    """Return the message with which a run ends that too few sites can continue."""
    try:
        e.go()
    except QuorumError as error:
        return str(error)
    raise AssertionError("the run went on without its quorum")


def a_site_that_drops_out_is_left_out(case: Case) -> None:
    """Check that a round goes on without a site that raises an error."""
    assert_left_out(case, "raise", "the cable was pulled")


def nan_is_refused(case: Case) -> None:
    """Check that an answer that is not finite is left out."""
    assert_left_out(case, "nan", "is not finite")


def wrong_shapes_are_refused(case: Case) -> None:
    """Check that an answer of another shape is left out."""
    assert_left_out(case, "shape", "has shape")


def the_quorum_holds(case: Case) -> None:
    """Check that a run ends where too many sites fail, with an error that names them."""
    _, after = mishap(case, "raise", 0, 1, 3)
    message = no_quorum(after)
    assert "the cable was pulled" in message
    names = ("pooled",) if case.algorithm.pools_data else ("site0", "site1", "site3")
    assert all(name in message for name in names)


def local_steps_are_static(case: Case) -> None:
    """Check one step on tensors with a shape and no values: whatever asks for a value or makes it a shape raises."""
    e = start(case, rounds=1).go()
    spec, site = e.population.spec, e.population.site(0)
    p = plan(spec.algorithm, spec.objective, spec.local, len(site.data.x), generator(0, 1, 0, "batches"))
    down = e.population.runtime.start(site, received(e, 0), p)
    trash = {name: torch.cat([t, t[:1]]) for name, t in site.data.rows.items()}
    _, real = next(batches(site.data, trash, p, pad=True))
    mode = FakeTensorMode()
    with FakeCopyMode(mode):
        module = copy.deepcopy(spec.algorithm.build(network()))
    with mode:

        def fake(tree: Tree) -> Tree:
            return {name: mode.from_tensor(t) for name, t in tree.items()}

        net = Net(module, Layout.of(module, spec.algorithm.is_personal))
        labels = type(real.labels)(mode.from_tensor(real.labels.values), real.labels.classes)
        x, there = mode.from_tensor(real.x), mode.from_tensor(real.real)
        batch = Batch.of(x, labels, there, fake(real.rows), fake(real.draws), fake(real.site_stats))
        down, memory = fake(down), fake(site.memory)
        slots = spec.algorithm.init_optimizer(net.w, down, memory)
        step = spec.local.step(net, batch, down, memory, slots, spec.local.lr)
        loss, out = spec.algorithm.local_step(spec.objective, step)
        with torch.no_grad():
            spec.objective.update_rows(net, batch, out)
    assert isinstance(loss, FakeTensor)
    assert loss.shape == ()
