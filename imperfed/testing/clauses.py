"""The contract, one function per clause: each takes a case and fails if the method breaks what every run relies on."""

from __future__ import annotations

import copy
import math
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext
from imperfed.core.exchange import Updates
from imperfed.core.federation import Federation
from imperfed.data.oracle import Oracle
from imperfed.engine.backends.cuda.graph_backend import CudaGraphBackend
from imperfed.engine.backends.sequential import respond
from imperfed.engine.local_training import Local, plan, train_locally, widen
from imperfed.engine.seeds import generator
from imperfed.evaluation.evaluator import Evaluator
from imperfed.testing.cases import Case
from imperfed.testing.toy import (
    LOCAL,
    Watched,
    differences,
    engine,
    everything,
    network,
    one_by_one,
    step_by_step,
    world,
)

Scene = tuple[Federation, Oracle]


def start(case: Case, data: Scene | None = None, **settings: Any) -> Watched:
    """Return an engine that asks three of four unequal sites per round, for two rounds, unless set otherwise."""
    how = {"rounds": 2, "participation": 0.75, "evaluate_every": 2} | settings
    return engine(case.algorithm, case.objective, data or world(case.kind), **how)


def received(e: Watched, site: int) -> Tree:
    """Return what a site receives in the last exchange of a round."""
    return e.population.down(site, e.population.spec.algorithm.exchanges(1)[-1])


@cache
def reference(case: Case) -> tuple[Tree, list[dict[int, float]]]:
    """Return the end of an ordinary run, and its losses."""
    e = start(case).go()
    return everything(e), [report.losses for report in e.reports]


def assert_same_run(e: Watched, case: Case) -> None:
    """Check that a run ended as an ordinary one does, bit for bit, with the same losses on the way."""
    state, losses = reference(case)
    assert not differences(everything(e), state)
    assert [report.losses for report in e.reports] == losses[-len(e.reports) :]


def later(case: Case, data: Scene, before: Watched, **settings: Any) -> Watched:
    """Return an engine over a scene of the same sizes, in the state that another one has reached."""
    e = start(case, data, **settings)
    for name, t in e.state.flat().items():
        t.copy_(before.state.flat()[name])
    e.state.round = before.state.round
    return e


def same_seed_same_bits(case: Case) -> None:
    """Check that a run depends on its seed and on nothing else."""
    assert_same_run(start(case).go(), case)
    state, _ = reference(case)
    assert differences(everything(start(case, seed=1).go()), state)


def workers_make_no_difference(case: Case) -> None:
    """Check that worker processes compute the same bits."""
    assert_same_run(start(case, workers=2).go(), case)


def one_program_for_all_makes_no_difference(case: Case) -> None:
    """Check the program that a GPU replays, carried out step by step on the host, against one site after the other."""
    several = replace(LOCAL, epochs=2)  # sites with more and fewer steps
    # All steps of a round in one graph, and in three.
    for local, captured in ((LOCAL, 400), (several, 400), (LOCAL, 7)):
        with patch("imperfed.engine.backends.cuda.program.CAPTURED", captured):
            program = start(case, local=local, make_backend=step_by_step).go()
        alone = start(case, local=local, make_backend=one_by_one).go()
        assert isinstance(program.backend, CudaGraphBackend)
        assert program.backend.not_captured is None
        assert bool(program.backend.programs) == case.trains
        assert not differences(everything(program), everything(alone), 1e-5)
        for a, b in zip(program.reports, alone.reports, strict=True):
            assert a.losses.keys() == b.losses.keys()
            assert all(math.isclose(a.losses[k], b.losses[k], rel_tol=1e-4, abs_tol=1e-12) for k in a.losses)


def resuming_makes_no_difference(case: Case) -> None:
    """Check that a run that is stopped and resumed computes the same bits."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "state.safetensors")
        start(case).go(path, stop_after=1)
        rest = start(case)
        rest.state.restore(path)
    assert_same_run(rest.go(), case)


def truth_makes_no_difference(case: Case) -> None:
    """Check that training does not depend on the true labels."""
    federation, oracle = world(case.kind)
    assert oracle.truth is not None
    _, other = world(case.kind, seed=1)
    lie = Oracle(oracle.truth.flip(0), other.test_x, other.test_y, other.test_x[0], other.test_y[0])
    assert_same_run(start(case, (federation, lie)).go(), case)


def inputs_are_not_mutated(case: Case) -> None:
    """Check that data and initial network stay as they were."""
    federation, oracle = world(case.kind)
    net = network()
    given = {"x": federation.x, "labels": federation.labels.values, "public": federation.public}
    given |= {f"test {k}": x for k, x in enumerate(oracle.test_x)}
    before = {name: t.clone() for name, t in (given | dict(net.named_parameters())).items()}
    start(case, (federation, oracle), net=net).go().inferred_labels()
    assert not differences(given | dict(net.named_parameters()), before)


def nothing_changes_before_an_answer_is_accepted(case: Case) -> None:
    """Check that a site that answers leaves its memory alone until the server has accepted the answer."""
    e = start(case, rounds=1).go()
    before = everything(e)
    for k in range(len(e.population.sizes)):
        respond(e.population, 1, len(case.algorithm.exchanges(1)) - 1, k)
    assert not differences(everything(e), before)


def padding_makes_no_difference(case: Case) -> None:
    """Check that rows that only fill a batch, and steps that only fill a round, change nothing."""
    e = start(case, rounds=1).go()
    spec, runtime, site = e.population.spec, e.population.runtime, e.population.site(0)
    n = len(site.data.x)
    exact = plan(spec.algorithm, spec.objective, spec.local, n, generator(0, 1, 0, "batches"))
    assert n % spec.local.batch
    ends = []
    for p, pad in ((exact, False), (exact, True), (widen(exact, n, 3), True)):
        down = runtime.start(site, received(e, 0), exact)
        net = runtime.load(site, down["w"], down["buffers"])
        memory = runtime.memory(site)
        done, loss, rows = train_locally(
            spec.algorithm, spec.objective, net, site.data, p, down, memory, spec.local, pad
        )
        extra, memory = spec.algorithm.reply(done)
        trees = {"rows": rows, "extra": extra, "memory": memory}
        named = {f"{part}/{name}": t.clone() for part, tree in trees.items() for name, t in tree.items()}
        ends.append(named | {"w": net.w.clone(), "loss": loss})
    assert not differences(ends[0], ends[1], tolerance=1e-6)
    assert not differences(ends[0], ends[2], tolerance=1e-6)


def order_of_answers_makes_no_difference(case: Case) -> None:
    """Check that the server merges the same answers to the same model, whoever came first."""
    e = start(case, participation=1.0).go(stop_after=1)
    for number, exchange in enumerate(case.algorithm.exchanges(1)):
        answers = e.exchange(1, number, exchange, replace(e.reports[0], failures={}))
        order = torch.arange(len(answers.who)).flip(0)
        trees = {name: t[order] for name, t in answers.trees.items()}
        shuffled = Updates(tuple(answers.who[i] for i in order), answers.n[order], trees)
        merged = []
        for updates in (answers, shuffled):
            context = ServerContext(e.server.net, e.population.federation.public, 1, 0.05, generator(0, 1, -1, "hall"))
            before = {name: t.clone() for name, t in updates.trees.items()}
            merged.append(exchange.aggregate(dict(e.state.server), updates, context))
            assert not differences(dict(updates.trees), before)
        # A server may divide by the learning rate, and with it the rounding of a float32 sum.
        assert not differences(merged[0], merged[1], tolerance=1e-5)
        e.server.remember(0, merged[0])


def one_client_works(case: Case) -> None:
    """Check that a federation of one site trains."""
    e = start(case, world(case.kind, (20,)), rounds=2).go()
    assert [report.who for report in e.reports] == [(0,), (0,)]
    assert all(torch.isfinite(t).all() for t in everything(e).values())


def sites_do_not_see_each_other(case: Case) -> None:
    """Check that within a round a site's answer depends on its own rows alone."""
    if case.algorithm.pools_data:  # one site holds all rows
        return
    data, other = world(case.kind), world(case.kind, seed=1)[0]
    changed = slice(*data[0].starts[2:4])  # the largest site, which is asked first
    x, labels = data[0].x.clone(), data[0].labels.values.clone()
    x[changed], labels[changed] = other.x[changed], other.labels.values[changed]
    elsewhere = replace(data[0], x=x, labels=type(data[0].labels)(labels, data[0].labels.classes))
    before = start(case, data, participation=1.0).go(stop_after=1)
    runs = [later(case, s, before, participation=1.0) for s in (data, (elsewhere, data[1]))]
    for e in runs:
        e.exchange(1, 0, case.algorithm.exchanges(1)[0], replace(before.reports[0], round=1))
    for k in range(4):
        answers = [{name: t[k] for name, t in e.seen[0].trees.items()} | own(e, k) for e in runs]
        assert bool(differences(answers[0], answers[1])) == (k == 2)


def own(e: Watched, site: int) -> Tree:
    """Return what one site keeps for itself."""
    kept = {f"memory/{name}": t[site].clone() for name, t in e.state.memory.items()}
    rows = {f"rows/{name}": t.clone() for name, t in e.population.site(site).data.rows.items()}
    return kept | rows | {"personal": e.state.personal[site].clone()}


RUN = 8
"""So many labels in a row that no sum or count looks like them by chance."""


def private_pieces(e: Watched, site: int, round: int) -> list[Tensor]:
    """Return what must not be found in an answer: inputs; runs of labels and row memory, as stored and as visited."""
    spec, data = e.population.spec, e.population.site(site).data
    draw = generator(spec.seed, round, site, "batches")
    visited = plan(spec.algorithm, spec.objective, spec.local, len(data.x), draw).rows[0]
    visited = visited[visited < len(data.x)]
    pieces = [data.x]
    for t in (data.labels.values, *data.rows.values()):
        table = t.reshape(len(t), -1).float()
        pieces.append(table.unfold(0, RUN, 1).transpose(1, 2).flatten(1))
        pieces.append(table[visited].reshape(1, -1))
    return [p[p.min(1).values < p.max(1).values] for p in pieces]


def found(pieces: Tensor, sent: Tensor) -> bool:
    """Return whether any of these rows is a contiguous piece of what was sent."""
    flat, length = sent.flatten().float(), pieces.shape[1]
    return len(flat) >= length and bool((flat.unfold(0, length, 1) == pieces.unsqueeze(1)).all(-1).any())


def uploads_hold_no_rows(case: Case) -> None:
    """Check that no input, label or row memory leaves a site, and no tensor whose size reveals the number of rows."""
    few, more = (start(case, world(case.kind, (n,) * 4), participation=1.0) for n in (20, 26))
    more.go()
    for round in range(2):
        before = {k: private_pieces(few, k, round) for k in range(len(few.population.sizes))}
        few.round(round)
        for updates in few.seen[-len(case.algorithm.exchanges(round)) :]:
            for row, k in enumerate(updates.who):
                secrets = before[k] + private_pieces(few, k, round)
                assert not any(found(pieces, t[row]) for pieces in secrets for t in updates.trees.values())
    shapes = [[{name: t.shape[1:] for name, t in u.trees.items()} for u in e.seen] for e in (few, more)]
    assert shapes[0] == shapes[1]


LEARNED = 0.9
"""Accuracy where an example has one of four classes (chance: 0.25), AUROC where it may have several (chance: 0.5).

The classes lie eleven standard deviations apart: who learns at all is nearly always right, whatever the labels lack."""


def it_learns(case: Case) -> None:
    """Check that three rounds on well separated classes are enough."""
    data = world(case.kind, (40, 60, 50))
    e = start(case, data, rounds=3, participation=1.0, local=Local(steps=15, batch=16, lr=0.1)).go()
    metric = Evaluator(data[1]).metric
    for scores in e.reports[-1].personal.values():
        assert scores[metric][0] > LEARNED


def beliefs_are_probabilities(case: Case) -> None:
    """Check that inferred labels are probabilities, one per training row and class."""
    federation, _ = data = world(case.kind)
    beliefs = start(case, data, rounds=1).go().inferred_labels()
    if beliefs is not None:
        assert beliefs.shape == (len(federation.x), len(federation.classes))
        assert (beliefs >= 0).all()
        assert (beliefs <= 1 + 1e-6).all()


def methods_hold_nothing_but_their_settings(case: Case) -> None:
    """Check that both are frozen dataclasses that a run leaves as they were."""
    before = copy.deepcopy((case.algorithm, case.objective))
    start(case).go()
    for method, was in ((case.algorithm, before[0]), (case.objective, before[1])):
        assert vars(type(method))["__dataclass_params__"].frozen
        assert vars(method).keys() == {field.name for field in fields(method)}
        assert method == was
        assert hash(method) == hash(was)
