"""The clauses about sites that fail, and about steps that could not be captured for a device."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from toy import Watched, differences, network, world

from contract.cases import Case
from contract.checks import Scene, later, own, start
from imperfed.core import Algorithm, Batch, Done, Objective, Step, Tree
from imperfed.descend import batches, plan
from imperfed.engine import site as at_site
from imperfed.engine.seeds import generator
from imperfed.errors import QuorumError
from imperfed.network import Layout, Net

MARK = 77.0
"""A feature of this value makes trouble, wherever a broken algorithm meets it."""


def broken(algorithm: Algorithm, how: str) -> Algorithm:
    """The same algorithm with the same settings, in which a site that trains on a marked row misbehaves."""

    class Broken(type(algorithm)):  # type: ignore[misc]
        def local(self, objective: Objective, step: Step) -> tuple[Tensor, Any]:
            result: tuple[Tensor, Any] = super().local(objective, step)
            if (step.batch.x == MARK).any():
                step.slots["met"] = torch.ones(())
                if how == "raise":
                    raise RuntimeError("the cable was pulled")
                if how == "nan":
                    step.w.fill_(torch.nan)
            return result

        def reply(self, done: Done) -> tuple[Tree, Tree]:
            extra, memory = super().reply(done)
            wrong = {"w": torch.zeros(done.net.layout.shared + 1)}
            return (extra | wrong if how == "shape" and "met" in done.slots else extra), memory

    return Broken(**{field.name: getattr(algorithm, field.name) for field in fields(algorithm)})


def marked(scene: Scene, *sites: int) -> Scene:
    """The scene with one marked row at each of these sites."""
    federation, oracle = scene
    x = federation.x.clone()
    x[[federation.starts[k] for k in sites], 0] = MARK
    return replace(federation, x=x), oracle


def mishap(case: Case, how: str, *sites: int) -> tuple[Watched, Watched]:
    """A good round, then one in which some sites misbehave: the engines before and after."""
    scene = world(case.kind)
    before = start(case, scene, participation=1.0).go(stop_after=1)
    worse = Case(broken(case.algorithm, how), case.objective)
    return before, later(worse, marked(scene, *sites), before, rounds=2, participation=1.0)


def left_out(case: Case, how: str, reason: str) -> None:
    before, after = mishap(case, how, 1)
    if case.algorithm.gathers:
        with pytest.raises(QuorumError, match=reason):
            after.go()
    else:
        after.go()
        (report,) = after.reports
        assert report.failures.keys() == {1}
        assert reason in report.failures[1]
        assert after.seen[-1].who == (0, 2, 3)
        assert all(torch.isfinite(t).all() for t in after.state.flat().values())
    lost = 0 if case.algorithm.gathers else 1
    assert not differences(own(after, lost), own(before, lost))


def a_site_that_drops_out_is_left_out(case: Case) -> None:
    left_out(case, "raise", "the cable was pulled")


def nan_is_refused(case: Case) -> None:
    left_out(case, "nan", "is not finite")


def wrong_shapes_are_refused(case: Case) -> None:
    left_out(case, "shape", "has shape")


def the_quorum_holds(case: Case) -> None:
    _, after = mishap(case, "raise", 0, 1, 3)
    with pytest.raises(QuorumError, match="the cable was pulled") as caught:
        after.go()
    names = ("pooled",) if case.algorithm.gathers else ("site0", "site1", "site3")
    assert all(name in str(caught.value) for name in names)


def local_steps_are_static(case: Case) -> None:
    """One step on tensors that have a shape and no values: whatever asks for a value or makes a shape of one raises."""
    e = start(case, rounds=1).go()
    job, shelf = e.bench.job, e.bench.shelf(0)
    p = plan(job.algorithm, job.local, len(shelf.x), generator(0, 1, 0, "batches"))
    desk = at_site.sit_down(e.bench, 0, p)
    down = job.algorithm.begin(desk)
    trash = {name: torch.cat([t, t[:1]]) for name, t in shelf.rows.items()}
    _, real = next(batches(shelf, trash, p, pad=True))
    with FakeTensorMode() as mode:

        def fake(tree: Tree) -> Tree:
            return {name: mode.from_tensor(t) for name, t in tree.items()}

        module = job.algorithm.build(network())
        net = Net(module, Layout.of(module, job.algorithm.stays))
        labels = type(real.labels)(mode.from_tensor(real.labels.values), real.labels.classes)
        x, there = mode.from_tensor(real.x), mode.from_tensor(real.real)
        batch = Batch.of(x, labels, there, fake(real.rows), fake(real.draws), fake(real.survey))
        down, memory = fake(down), fake(desk.memory)
        slots = job.algorithm.start(net.w, down, memory)
        step = Step(net, batch, down, memory, slots, job.local.lr, job.local.momentum, job.local.weight_decay)
        loss, out = job.algorithm.local(job.objective, step)
        with torch.no_grad():
            job.objective.remember(net, batch, out)
    assert isinstance(loss, FakeTensor)
    assert loss.shape == ()
