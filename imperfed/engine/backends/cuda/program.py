"""The local steps of several sites, recorded once and replayed.

Every site's numbers are a row of one matrix, as are gradients and momenta. Small networks that are one chain of layers
step together, as a stack; others each on one of a few streams, where a site's steps follow one another and wait for no
other site. The algorithm's hooks are called as the loop calls them. What changes from round to round lies in tensors at
fixed addresses: which rows (an index into the resident data), the random numbers, what was received and what is
remembered.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Batch, Tree
from imperfed.core.context import LocalResult, LocalStep
from imperfed.core.network import Net
from imperfed.core.objective import Objective
from imperfed.engine.backends.cuda.batch_schedule import Assignment, BatchSchedule, Staged
from imperfed.engine.backends.cuda.capture import Capturer
from imperfed.engine.backends.stacked import StackedNet, stackable
from imperfed.engine.site import SiteRuntime

RECORDED = 400
"""Steps of a site in one record at most: a longer one takes longer to make than it saves."""
ALIGNED = 64
"""Numbers between addresses at which any kernel can start: 256 bytes."""


class NotCapturable(Exception):
    """A local step that cannot be recorded, and why."""


def capture(
    runtime: SiteRuntime, given: Sequence[Assignment], downs: Sequence[Tree], recorder: Capturer, compiled: bool
) -> CapturedProgram:
    """A program for as many sites as are given here; raises `Unrecordable`."""
    if reason := obstacle(runtime):
        raise NotCapturable(reason)
    try:
        return CapturedProgram(runtime, given, downs, recorder, compiled)
    except Exception as error:
        # Whatever the step does that cannot be recorded: the loop can do it, or will say what is wrong with it.
        raise NotCapturable(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}") from error


def obstacle(runtime: SiteRuntime) -> str | None:
    """Why the local steps of this job cannot be recorded, as far as that is known without trying."""
    modules = list(runtime.net.module.modules())
    if any(map(draws, modules)):
        return "a layer draws random numbers of its own"
    sizes, batch = runtime.spec.federation.sizes(), runtime.spec.local.batch
    if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in modules) and any(n % batch for n in sizes):
        return f"batch normalisation would count the rows that pad a batch to {batch}"
    return None


def draws(layer: nn.Module) -> bool:
    """Whether a layer is known to draw random numbers in training."""
    if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
        return layer.dropout > 0
    return isinstance(layer, nn.modules.dropout._DropoutNd | nn.RReLU)


def total_of(algorithm: Algorithm, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
    """What is compiled: once for all sites, since their networks differ in their numbers alone."""
    return algorithm.step_loss(objective, step)


class SiteNet(Net):
    """A network in a program: its gradient is put together at once, not added up tensor by tensor."""

    def backward(self, loss: Tensor) -> Tensor:
        """The gradient of a scalar at the present weights, as one vector (overwritten by the next call)."""
        parts = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
        if all(part.is_contiguous() for part in parts):
            torch.cat([part.view(-1) for part in parts], out=self.grad)
        else:  # that would first copy what lies in another order
            for parameter, part in zip(self.parameters, parts, strict=True):
                cast(Tensor, parameter.grad).copy_(part)
        return self.grad


@dataclass(frozen=True)
class SiteSlot:
    """Sites that step as one, and views of what is theirs at fixed addresses: one site, or all of them as a stack."""

    first: int
    sites: int
    net: Net
    down: Tree
    memory: Tree
    survey: Tree
    slots: Tree

    @property
    def rows(self) -> slice:
        """Their rows of the program's matrices."""
        return slice(self.first, self.first + self.sites)


class CapturedProgram:
    """M sites' local steps. `train` them, then read the `ends`."""

    def __init__(
        self,
        runtime: SiteRuntime,
        given: Sequence[Assignment],
        downs: Sequence[Tree],
        recorder: Capturer,
        compiled: bool,
    ) -> None:
        self.bench, self.recorder, M = runtime, recorder, len(given)
        spec, device = runtime.spec, runtime.net.row.device
        stacks = M > 1 and stackable(spec, runtime.net.module)
        steps = {spec.local.steps_of(n) for n in spec.federation.sizes()}
        size = block_size(max(steps), 1 if stacks else M)
        self.ragged = len(steps) > 1 or max(steps) % size > 0
        self.table = BatchSchedule(size, given, device)
        self.compiled = compiled and type(spec.algorithm).local_step is Algorithm.local_step
        self.total = torch.compile(total_of, dynamic=False) if self.compiled else None
        self.W, self.G = matrix(M, spec.layout.size, device), matrix(M, spec.layout.trainable, device)
        self.losses = self.W.new_zeros(M)
        self.starts = torch.tensor(spec.federation.starts, device=device)
        # One more row: what would be remembered of slots that pad a batch goes there.
        self.scratch = {name: torch.cat([t, torch.zeros_like(t[:1])]) for name, t in runtime.state.rows.items()}
        self.down = stacked(downs)
        self.memory = {
            name: t[:1].repeat(M, *[1] * (t.ndim - 1)).to(device) for name, t in runtime.state.memory.items()
        }
        self.survey = stacked([runtime.site_data(0).site_stats] * M)
        rows = zip(self.W, self.G, strict=True)
        nets = [SiteNet(copy.deepcopy(runtime.net.module), spec.layout, *row) for row in rows]
        received = (each(t, M) for t in (self.down, self.memory))
        self.slots = stacked(
            [spec.algorithm.init_optimizer(net.w, *trees) for net, *trees in zip(nets, *received, strict=True)]
        )
        trees = (self.down, self.memory, self.survey, self.slots)
        parts = enumerate(zip(nets, *(each(t, M) for t in trees), strict=True))
        self.seats = [SiteSlot(m, 1, *one) for m, one in parts]
        # A stack stands in for a net: what a plain step asks of one, it has.
        stack = (
            [SiteSlot(0, M, cast(Net, StackedNet(runtime.net.module, spec.layout, self.W, self.G)), *trees)]
            if stacks
            else []
        )
        self.at_work = stack or self.seats
        self.replay = recorder.capture(lambda: self._block(size), lambda: self._block(1))

    # -- what is recorded -------------------------------------------------------------------------------------------

    def _block(self, steps: int) -> None:
        """The first steps of a block; their rows are gathered at once."""
        fed, table = self.bench.spec.federation, self.table
        at = table.index[:steps].flatten()
        x = fed.x.index_select(0, at if fed.at is None else fed.at.index_select(0, at))
        labels = fed.labels.take(at)

        def work(number: int) -> Tensor:
            runtime = self.at_work[number]
            return torch.stack([self._step(runtime, h, x, labels).view(-1) for h in range(steps)])

        losses = torch.cat(self.recorder.side_by_side(work, len(self.at_work)), 1)
        self.losses += torch.where(table.active[:steps], losses, 0.0).sum(0)

    def _step(self, runtime: SiteSlot, h: int, x: Tensor, labels: Any) -> Tensor:
        """One local step at a seat, and its loss."""
        moving = [t[runtime.rows] for t in (self.W, *self.slots.values())] if self.ragged else []
        before = [t.clone() for t in moving]
        batch, slot = self._batch(runtime, h, x, labels)
        loss, out = self._local(runtime, batch)
        if self.scratch:
            self._remember(runtime, batch, out, slot)
        active = self.table.active[h, runtime.rows]
        for t, old in zip(moving, before, strict=True):
            t.copy_(torch.where(active.view(-1, *[1] * (t.ndim - 1)), t, old))
        return loss

    def _batch(self, runtime: SiteSlot, h: int, x: Tensor, labels: Any) -> tuple[Batch, Tensor]:
        """The rows of a step, and where what is remembered of them lies."""
        table, (M, B) = self.table, self.table.index.shape[1:]
        a, b = (h * M + runtime.first) * B, (h * M + runtime.first + runtime.sites) * B
        index, real, share = (t.view(-1)[a:b] for t in (table.index, table.real, table.share))
        slot = torch.where(real > 0, index, len(self.bench.spec.federation.labels)) if self.scratch else index
        rows = {name: t.index_select(0, slot) for name, t in self.scratch.items()}
        if runtime.sites > 1:
            return Batch(x[a:b], labels.between(a, b), real, share.view(-1, B), rows, {}, {}), slot
        drawn = {name: t[h, runtime.first] for name, t in table.draws.items()}
        return Batch(x[a:b], labels.between(a, b), real, share, rows, drawn, runtime.survey), slot

    def _local(self, runtime: SiteSlot, batch: Batch) -> tuple[Tensor, Any]:
        """`Algorithm.local`, what it leaves in slots put at their addresses."""
        spec, local, slots = self.bench.spec, self.bench.spec.local, dict(runtime.slots)
        step = LocalStep(
            runtime.net, batch, runtime.down, runtime.memory, slots, local.lr, local.momentum, local.weight_decay
        )
        runtime.net.train(True)
        if self.total is not None:
            loss, out = self.total(spec.algorithm, spec.objective, step)
            spec.algorithm.move(spec.algorithm.gradient(loss, step), step)
        else:
            loss, out = spec.algorithm.local_step(spec.objective, step)
        for name, t in slots.items():
            if t is not runtime.slots[name]:
                runtime.slots[name].copy_(t)
        return loss.detach(), out

    @torch.no_grad()
    def _remember(self, runtime: SiteSlot, batch: Batch, out: Any, slot: Tensor) -> None:
        runtime.net.train(False)
        for name, values in self.bench.spec.objective.update_rows(runtime.net, batch, out).items():
            self.scratch[name].index_copy_(0, slot, values)

    # -- a round ----------------------------------------------------------------------------------------------------

    def train(self, sites: Sequence[int], staged: Staged, downs: Sequence[Tree]) -> None:
        """Make a round's steps; the host does not wait for them."""
        self._load(sites, downs)
        for number in range(staged.blocks):
            self.table.turn(staged, number)
            self.replay()
        self.losses /= self.table.counts

    def _load(self, sites: Sequence[int], downs: Sequence[Tree]) -> None:
        """What the sites start from, in place."""
        state, layout = self.bench.state, self.bench.spec.layout
        for name, t in self.down.items():
            lay(t, [down[name] for down in downs])
        w, buffers, cut = self.down["w"], self.down["buffers"], layout.trainable - layout.shared
        if layout.size > layout.shared:  # something stays at the sites, or is no weight
            personal = state.personal[list(sites)].to(self.W.device)
            torch.cat((w, personal[:, :cut], buffers, personal[:, cut:]), 1, out=self.W)
        else:
            self.W.copy_(w)
        for name, t in self.memory.items():
            t.copy_(state.memory[name][list(sites)])
        for name, t in self.survey.items():
            lay(t, [self.bench.site_data(k).site_stats[name] for k in sites])
        for k in sites:
            for name, t in self.rows_of(k).items():
                t.copy_(self.bench.site_data(k).rows[name])
        self._start()
        self.losses.zero_()

    def _start(self) -> None:
        algorithm = self.bench.spec.algorithm
        if type(algorithm).init_optimizer is Algorithm.init_optimizer:
            self.slots["v"].zero_()
            return
        fresh = [algorithm.init_optimizer(runtime.net.w, runtime.down, runtime.memory) for runtime in self.seats]
        for name, t in self.slots.items():
            lay(t, [one[name] for one in fresh])

    def ends(self, given: Sequence[Assignment]) -> list[LocalResult]:
        """Every site after its last step."""
        lr, seats = self.bench.spec.local.lr, zip(self.seats, given, strict=True)
        return [LocalResult(s.net, s.slots, s.down, s.memory, one.steps, lr) for s, one in seats]

    def rows_of(self, site: int) -> Tree:
        """What is now remembered of a site's examples, as views."""
        if not self.scratch:
            return {}
        a, b = self.bench.spec.federation.starts[site : site + 2]
        return {name: t[a:b] for name, t in self.scratch.items()}

    def sound(self, sites: Sequence[int]) -> Tensor:
        """Whether all numbers of a site, and of its examples, are finite."""
        sound = torch.isfinite(self.W).all(1)
        for t in self.scratch.values():
            bad = (~torch.isfinite(t.flatten(1)).all(1)).cumsum(0)
            bad = torch.cat([bad.new_zeros(1), bad])[self.starts]
            sound = sound & (bad[1:] == bad[:-1])[list(sites)]
        return sound


def block_size(steps: int, sites: int) -> int:
    """Steps in one record: all of a round, or a part of it where the record would grow too large."""
    most = max(1, min(steps, RECORDED // sites))
    return next((size for size in range(most, most // 4, -1) if steps % size == 0), most)


def matrix(rows: int, columns: int, device: torch.device) -> Tensor:
    """Zeros, every row of which begins at an address that the fastest kernels can read from."""
    wide = -(-columns // ALIGNED) * ALIGNED
    return torch.zeros(rows, wide, device=device)[:, :columns]


def stacked(trees: Sequence[Tree]) -> Tree:
    """The trees' tensors, a row a tree."""
    return {name: torch.stack([tree[name] for tree in trees]) for name in trees[0]}


def each(tree: Tree, count: int) -> list[Tree]:
    """The rows of stacked trees, as views."""
    return [{name: t[m] for name, t in tree.items()} for m in range(count)]


def lay(rows: Tensor, parts: list[Tensor]) -> None:
    """Put a row of each part; where all are the same tensor, at once."""
    if all(part is parts[0] for part in parts):
        rows.copy_(parts[0])
    else:
        torch.stack(parts, out=rows)
