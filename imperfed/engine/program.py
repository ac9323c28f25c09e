"""A local step of several sites, recorded once and replayed.

Every site's numbers are a row of one matrix, as are gradients and momenta. Each site's forward and backward pass runs
on one of a few streams; a plain step of the optimiser is one operation on the matrices. The algorithm's hooks are
called as the loop calls them, a site at a time. What changes from step to step lies in tensors at fixed addresses:
which rows (an index into the resident data), the random numbers, and the number of the step itself.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from imperfed.core import Algorithm, Batch, Done, Step, Tree
from imperfed.descend import Plan
from imperfed.engine.record import Recorder
from imperfed.engine.site import Bench
from imperfed.network import Net

PLAIN = ("local", "move", "start")
"""Hooks that must be the base class's for the move of all sites to be one operation."""


class Unrecordable(Exception):
    """A local step that cannot be recorded, and why."""


@dataclass(frozen=True)
class Assignment:
    """A site's work in one round, its rows counted among those of all sites."""

    plan: Plan
    index: Tensor
    """[steps, B]; a slot that pads a batch holds the site's first row."""
    real: Tensor
    """0 on slots that pad, 1 on others."""

    @classmethod
    def of(cls, plan: Plan, n: int, first: int) -> Assignment:
        """From a plan for n rows, the first of which has this number."""
        real = plan.rows < n
        return cls(plan, torch.where(real, plan.rows, 0) + first, real.float())

    @property
    def steps(self) -> int:
        """The number of local steps."""
        return len(self.index)


class Timetable:
    """Which rows every site visits in every step, at fixed addresses on the device."""

    def __init__(self, longest: int, like: Sequence[Assignment], device: torch.device) -> None:
        first = like[0]
        shape = (longest, len(like), first.index.shape[1])
        self.index = torch.zeros(shape, dtype=torch.int64, device=device)
        self.real, self.share = (torch.zeros(shape, device=device) for _ in range(2))
        self.draws = {
            name: torch.zeros(longest, len(like), *t.shape[1:], dtype=t.dtype, device=device)
            for name, t in first.plan.draws.items()
        }
        self.lengths = torch.full((len(like),), longest, device=device)
        self.h = torch.zeros(1, dtype=torch.int64, device=device)
        """The number of the present step."""

    def load(self, given: Sequence[Assignment]) -> None:
        """Take over a round's work and go to its first step."""
        put(self.index, [one.index for one in given])
        put(self.real, [one.real for one in given])
        for name, t in self.draws.items():
            put(t, [one.plan.draws[name] for one in given])
        torch.div(self.real, self.real.sum(-1, keepdim=True).clamp(min=1), out=self.share)
        self.lengths.copy_(torch.tensor([one.steps for one in given]))
        self.rewind()

    def rewind(self) -> None:
        """Go to the first step."""
        self.h.zero_()

    def now(self, t: Tensor) -> Tensor:
        """What a table says for the present step, a row a site."""
        return t.index_select(0, self.h)[0]

    def active(self) -> Tensor:
        """Which sites have not made all of their steps yet."""
        return self.h < self.lengths


def put(table: Tensor, parts: Sequence[Tensor]) -> None:
    """Lay the sites' parts [steps, ...] side by side into a table [longest, M, ...]; what is over keeps 0."""
    longest = max(map(len, parts))
    if all(len(part) == longest for part in parts):
        beside = torch.stack(list(parts), 1)
        table[:longest].copy_(beside.pin_memory() if table.is_cuda else beside, non_blocking=True)
        return
    table.zero_()
    for m, part in enumerate(parts):
        table[: len(part), m].copy_(part)


def record(
    bench: Bench, given: Sequence[Assignment], downs: Sequence[Tree], recorder: Recorder, compiled: bool
) -> Program:
    """A program for as many sites as are given here; raises `Unrecordable`."""
    if reason := obstacle(bench):
        raise Unrecordable(reason)
    try:
        return Program(bench, given, downs, recorder, compiled)
    except Exception as error:
        # Whatever the step does that cannot be recorded: the loop can do it, or will say what is wrong with it.
        raise Unrecordable(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}") from error


def obstacle(bench: Bench) -> str | None:
    """Why the local steps of this job cannot be recorded, as far as that is known without trying."""
    modules = list(bench.net.module.modules())
    if any(isinstance(m, nn.modules.dropout._DropoutNd | nn.RReLU) for m in modules):
        return "a layer draws random numbers of its own"
    sizes, batch = bench.job.federation.sizes(), bench.job.local.batch
    if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in modules) and any(n % batch for n in sizes):
        return f"batch normalisation would count the rows that pad a batch to {batch}"
    return None


@dataclass(frozen=True)
class Seat:
    """One site's place in the program: views of what lies at fixed addresses."""

    net: Net
    down: Tree
    memory: Tree
    survey: Tree
    slots: Tree


@dataclass(frozen=True)
class Rows:
    """Stands for a network in a step of all sites at once, of which only the weights are asked."""

    w: Tensor


class Program:
    """M sites' local steps. `load` it with a round's work, `replay` it, and read the `ends`."""

    def __init__(
        self, bench: Bench, given: Sequence[Assignment], downs: Sequence[Tree], recorder: Recorder, compiled: bool
    ) -> None:
        self.bench, self.recorder, M = bench, recorder, len(given)
        job, trainable = bench.job, bench.job.layout.trainable
        fed, device = job.federation, bench.net.row.device
        self.table = Timetable(max(map(job.local.steps_of, fed.sizes())), given, device)
        self.ragged = job.local.epochs > 0
        self.plain = all(getattr(type(job.algorithm), hook) is getattr(Algorithm, hook) for hook in PLAIN)
        self.W = bench.net.row.repeat(M, 1)
        self.G = self.W.new_zeros(M, trainable)
        self.losses = self.W.new_zeros(M)
        # One more row: what would be remembered of slots that pad a batch goes there.
        self.scratch = {name: torch.cat([t, torch.zeros_like(t[:1])]) for name, t in bench.state.rows.items()}
        nets = [Net(copy.deepcopy(bench.net.module), job.layout, *rows) for rows in zip(self.W, self.G, strict=True)]
        if compiled:
            call = torch.compile(call_module)
            for net in nets:
                net.call = partial(call, net.module)
        self.down = stacked(downs)
        self.memory = {name: t[:1].repeat(M, *[1] * (t.ndim - 1)).to(device) for name, t in bench.state.memory.items()}
        self.survey = stacked([bench.shelf(0).survey] * M)
        starts = zip(nets, *(each(t, M) for t in (self.down, self.memory)), strict=True)
        self.slots = stacked([job.algorithm.start(net.w, down, memory) for net, down, memory in starts])
        parts = (each(t, M) for t in (self.down, self.memory, self.survey, self.slots))
        self.seats = [Seat(*one) for one in zip(nets, *parts, strict=True)]
        self.replayed = recorder.record(self.step, self.table.rewind)

    # -- a step -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One local step of every site."""
        kept = self._all_that_moves() if self.ragged else {}
        before = {name: t.clone() for name, t in kept.items()}
        batches, slot = self._batches()
        made = self.recorder.side_by_side(lambda m: self._local(m, batches[m]), len(batches))
        losses, outs = torch.stack([loss for _, loss, _ in made]), [out for _, _, out in made]
        if self.plain:
            self._move_all(made[0][0])
        if self.scratch:
            self.recorder.side_by_side(lambda m: self._remember(m, batches[m], outs[m], slot[m]), len(batches))
        active = self.table.active()
        for name, t in kept.items():
            t.copy_(torch.where(active.view(-1, *[1] * (t.ndim - 1)), t, before[name]))
        self.losses += torch.where(active, losses, 0.0)
        self.table.h += 1

    def _all_that_moves(self) -> Tree:
        return {"row": self.W} | {f"slot {name}": t for name, t in self.slots.items()}

    def _batches(self) -> tuple[list[Batch], Tensor]:
        """Every site's batch of the present step, and where what is remembered of its rows lies."""
        fed, table, survey = self.bench.job.federation, self.table, [seat.survey for seat in self.seats]
        index, real, share = table.now(table.index), table.now(table.real), table.now(table.share)
        M, B = index.shape
        at = index.view(-1)
        slot = torch.where(real.view(-1) > 0, at, len(fed.labels))
        x = fed.x.index_select(0, at if fed.at is None else fed.at.index_select(0, at))
        labels = fed.labels.take(at)
        rows = {name: t.index_select(0, slot) for name, t in self.scratch.items()}
        draws = {name: table.now(t) for name, t in table.draws.items()}
        batches = []
        for m in range(M):
            a, b = m * B, (m + 1) * B
            of_rows, drawn = {n: t[a:b] for n, t in rows.items()}, {n: t[m] for n, t in draws.items()}
            batches.append(Batch(x[a:b], labels.between(a, b), real[m], share[m], of_rows, drawn, survey[m]))
        return batches, slot.view(M, B)

    def _local(self, m: int, batch: Batch) -> tuple[Step, Tensor, Any]:
        """A site's step; where the step is plain, all but the move itself, which is made for all sites at once."""
        job, seat, local = self.bench.job, self.seats[m], self.bench.job.local
        slots = dict(seat.slots)
        step = Step(seat.net, batch, seat.down, seat.memory, slots, local.lr, local.momentum, local.weight_decay)
        seat.net.train(True)
        if self.plain:
            loss, out, g = job.algorithm.slope(job.objective, step)
            if g is not seat.net.grad:
                seat.net.grad.copy_(g)
        else:
            loss, out = job.algorithm.local(job.objective, step)
            for name, t in slots.items():
                if t is not seat.slots[name]:
                    seat.slots[name].copy_(t)
        return step, loss, out

    def _move_all(self, like: Step) -> None:
        w = cast(Net, Rows(self.W[:, : self.G.shape[1]]))
        self.bench.job.algorithm.move(self.G, replace(like, net=w, slots=self.slots))

    @torch.no_grad()
    def _remember(self, m: int, batch: Batch, out: Any, slot: Tensor) -> None:
        net = self.seats[m].net
        net.train(False)
        for name, values in self.bench.job.objective.remember(net, batch, out).items():
            self.scratch[name].index_copy_(0, slot, values)

    # -- a round ----------------------------------------------------------------------------------------------------

    def load(self, sites: Sequence[int], given: Sequence[Assignment], downs: Sequence[Tree]) -> None:
        """Put a round's work in place."""
        state, layout = self.bench.state, self.bench.job.layout
        personal = state.personal[list(sites)].to(self.W.device)
        rows = [layout.join(d["w"], d["buffers"], own) for d, own in zip(downs, personal, strict=True)]
        torch.stack(rows, out=self.W)
        for name, t in self.down.items():
            torch.stack([down[name] for down in downs], out=t)
        for name, t in self.memory.items():
            t.copy_(state.memory[name][list(sites)])
        for name, t in self.survey.items():
            torch.stack([self.bench.shelf(k).survey[name] for k in sites], out=t)
        for k in sites:
            for name, t in self.rows_of(k).items():
                t.copy_(self.bench.shelf(k).rows[name])
        self.table.load(given)
        self._start()
        self.losses.zero_()

    def _start(self) -> None:
        if self.plain:
            self.slots["v"].zero_()
            return
        algorithm = self.bench.job.algorithm
        fresh = [algorithm.start(seat.net.w, seat.down, seat.memory) for seat in self.seats]
        for name, t in self.slots.items():
            torch.stack([one[name] for one in fresh], out=t)

    def replay(self, steps: int) -> None:
        """Make so many steps; the host does not wait for them."""
        for _ in range(steps):
            self.replayed()
        self.losses /= self.table.lengths

    def ends(self, given: Sequence[Assignment]) -> list[Done]:
        """Every site after its last step."""
        lr, seats = self.bench.job.local.lr, zip(self.seats, given, strict=True)
        return [Done(s.net, s.slots, s.down, s.memory, one.steps, lr) for s, one in seats]

    def rows_of(self, site: int) -> Tree:
        """What is now remembered of a site's examples, as views."""
        a, b = self.bench.job.federation.starts[site : site + 2]
        return {name: t[a:b] for name, t in self.scratch.items()}

    def sound(self, sites: Sequence[int]) -> Tensor:
        """Whether all numbers of a site, and of its examples, are finite."""
        sound = torch.isfinite(self.W).all(1)
        starts = torch.tensor(self.bench.job.federation.starts, device=self.W.device)
        who = torch.tensor(sites, device=self.W.device)
        for t in self.scratch.values():
            bad = (~torch.isfinite(t.flatten(1)).all(1)).cumsum(0)
            bad = torch.cat([bad.new_zeros(1), bad])
            sound = sound & (bad[starts[who]] == bad[starts[who + 1]])
        return sound


def call_module(module: nn.Module, x: Tensor) -> Tensor:
    """What is compiled: once for all sites, since their networks differ in their numbers alone."""
    logits: Tensor = module(x)
    return logits


def stacked(trees: Sequence[Tree]) -> Tree:
    """The trees' tensors, a row a tree."""
    return {name: torch.stack([tree[name] for tree in trees]) for name in trees[0]}


def each(tree: Tree, count: int) -> list[Tree]:
    """The rows of stacked trees, as views."""
    return [{name: t[m] for name, t in tree.items()} for m in range(count)]
