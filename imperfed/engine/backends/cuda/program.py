"""The local steps of several sites, captured once and replayed.

Every site's numbers are one row of a matrix; gradients and momenta likewise. Small networks that are one chain of
layers step together, as a stack. Others each run on one of a few streams, where a site's steps follow one another and
wait for no other site. The algorithm's hooks are called as in the sequential backend. What changes from round to round
is held in tensors at fixed addresses: which rows (an index into the resident data), the random numbers, what was
received, what is remembered, and a learning rate that is not constant.
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
from imperfed.core.rates import Rate
from imperfed.engine.backends.cuda.batch_schedule import Assignment, BatchSchedule, Staged
from imperfed.engine.backends.cuda.capturable import NotCapturable, generators, obstacle, padded
from imperfed.engine.backends.cuda.capture import Capturer
from imperfed.engine.backends.cuda.site_rows import fill_rows, matrix, stacked, unstacked
from imperfed.engine.backends.stacked import StackedNet, stackable
from imperfed.engine.population import Population
from imperfed.nn.augment import augment, separate

CAPTURED = 400
"""The most steps in one graph: a longer one takes longer to capture than it saves."""
LAYERS = 8000
"""The most layers with weights in one graph, over all its steps: a graph of very many kernels takes long to capture,
and the steps of a deep network keep the GPU busy for longer than the host needs to launch the next graph."""


def capture(
    population: Population, work: Sequence[Assignment], downs: Sequence[Tree], capturer: Capturer, compiled: bool
) -> CapturedProgram:
    """Return a program for as many sites as `work` has entries, or raise `NotCapturable`."""
    if reason := obstacle(population):
        raise NotCapturable(reason)
    try:
        return CapturedProgram(population, work, downs, capturer, compiled)
    except NotCapturable:
        raise
    except Exception as error:
        # Whatever the reason, running the step site by site either works or shows what is wrong with it.
        raise NotCapturable(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}") from error


def step_loss(algorithm: Algorithm, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
    """Return the loss of a step. It is compiled once for all sites, whose networks differ only in their numbers."""
    return algorithm.step_loss(objective, step)


class SiteNet(Net):
    """A network in a program: its gradient is written in one operation, not accumulated tensor by tensor."""

    def backward(self, loss: Tensor) -> Tensor:
        """Return the gradient of a scalar at the present weights, as one vector (overwritten by the next call)."""
        parts = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
        if all(part.is_contiguous() for part in parts):
            torch.cat([part.view(-1) for part in parts], out=self.grad)
        else:  # cat would first copy parts with another memory layout
            for parameter, part in zip(self.parameters, parts, strict=True):
                cast(Tensor, parameter.grad).copy_(part)
        return self.grad


@dataclass(frozen=True)
class SiteSlot:
    """Sites that step as one (one site, or all of them as a stack), with views of their tensors at fixed addresses."""

    first: int
    sites: int
    net: Net
    down: Tree
    memory: Tree
    site_stats: Tree
    opt_state: Tree

    @property
    def rows(self) -> slice:
        """Their rows of the program's matrices."""
        return slice(self.first, self.first + self.sites)


class CapturedProgram:
    """The local steps of M sites. Call `train`, then `results`."""

    def __init__(
        self,
        population: Population,
        work: Sequence[Assignment],
        downs: Sequence[Tree],
        capturer: Capturer,
        compiled: bool,
    ) -> None:
        self.population, self.capturer, M = population, capturer, len(work)
        spec, network, device = population.spec, population.runtime.net.module, population.runtime.net.row.device
        stacks = M > 1 and stackable(spec, network)
        steps = {spec.local.steps_of(n) for n in population.sizes}
        size = block_size(max(steps), 1 if stacks else M, depth(network))
        self.ragged = len(steps) > 1 or max(steps) % size > 0
        self.padded = padded(population)
        self.table = BatchSchedule(size, work, device, keyed=bool(population.runtime.net.step_layers))
        self.compiled = compiled and "local_step" not in spec.algorithm.overridden
        self.step_loss = torch.compile(step_loss, dynamic=False) if self.compiled else None
        self.W, self.G = matrix(M, spec.layout.size, device), matrix(M, spec.layout.trainable, device)
        self.losses = self.W.new_zeros(M)
        self.lr: Rate = spec.local.lr if spec.local.lr_is_constant else self.W.new_tensor(spec.local.lr)
        self.starts = torch.tensor(population.federation.starts, device=device)
        state = population.state
        # One extra row takes what would be remembered about padding slots.
        self.scratch = {name: torch.cat([t, torch.zeros_like(t[:1])]) for name, t in state.rows.items()}
        self.down = stacked(downs)
        self.memory = {name: t.repeat(M, *[1] * t.ndim).to(device) for name, t in state.kept_at(0)[1].items()}
        self.site_stats = stacked([population.site(0).data.site_stats] * M)
        nets = [SiteNet(copy.deepcopy(network), spec.layout, *row) for row in zip(self.W, self.G, strict=True)]
        starts = zip(nets, unstacked(self.down, M), unstacked(self.memory, M), strict=True)
        self.opt_state = stacked([spec.local.init_optimizer(spec.algorithm, net.w, *trees) for net, *trees in starts])
        trees = (self.down, self.memory, self.site_stats, self.opt_state)
        parts = enumerate(zip(nets, *(unstacked(t, M) for t in trees), strict=True))
        self.slots = [SiteSlot(m, 1, *one) for m, one in parts]
        self.at_work = self.slots
        if stacks:  # a stack can replace a net: it has everything that a plain step uses
            net = cast(Net, StackedNet(network, spec.layout, self.W, self.G))
            self.at_work = [SiteSlot(0, M, net, *trees)]
        self.replay = capturer.capture(lambda: self._block(size), self._try_step)

    def _try_step(self) -> None:
        """Make one step that counts for nothing; refuse one that draws random numbers by itself."""
        before = generators(self.W.device)
        self._block(1)
        if not all(map(torch.equal, before, generators(self.W.device))):
            raise NotCapturable(
                "the network or its loss draws random numbers of its own, such as by torch.nn.functional.dropout; "
                "nn.Dropout as a layer is captured"
            )

    # -- what is captured -------------------------------------------------------------------------------------------

    def _block(self, steps: int) -> None:
        """Make the first `steps` steps of a block; their rows are gathered at once."""
        fed, table = self.population.federation, self.table
        at = table.index[:steps].flatten()
        x = fed.x.index_select(0, at if fed.at is None else fed.at.index_select(0, at))
        labels = fed.labels.take(at)

        def work(number: int) -> Tensor:
            slot = self.at_work[number]
            return torch.stack([self._step(slot, h, x, labels).view(-1) for h in range(steps)])

        losses = torch.cat(self.capturer.side_by_side(work, len(self.at_work)), 1)
        self.losses += torch.where(table.active[:steps], losses, 0.0).sum(0)

    def _step(self, slot: SiteSlot, h: int, x: Tensor, labels: Any) -> Tensor:
        """Make one local step of a slot and return its loss."""
        moving = [t[slot.rows] for t in (self.W, *self.opt_state.values())] if self.ragged else []
        before = [t.clone() for t in moving]
        batch, at = self._batch(slot, h, x, labels)
        loss, out = self._local(slot, h, batch)
        if self.scratch:
            self._update_rows(slot, batch, out, at)
        active = self.table.active[h, slot.rows]
        for t, old in zip(moving, before, strict=True):
            t.copy_(torch.where(active.view(-1, *[1] * (t.ndim - 1)), t, old))
        return loss

    def _batch(self, slot: SiteSlot, h: int, x: Tensor, labels: Any) -> tuple[Batch, Tensor]:
        """Return the rows of a step, and the index of what is remembered about them."""
        table, (M, B) = self.table, self.table.index.shape[1:]
        a, b = (h * M + slot.first) * B, (h * M + slot.first + slot.sites) * B
        index, real, share = (t.view(-1)[a:b] for t in (table.index, table.real, table.share))
        at = torch.where(real > 0, index, len(self.population.federation.labels)) if self.scratch else index
        rows = {name: t.index_select(0, at) for name, t in self.scratch.items()}
        if slot.sites > 1:
            inputs = augment(x[a:b], {name: t[h, slot.rows].flatten(0, 1) for name, t in table.draws.items()})
            return Batch(inputs, labels.between(a, b), real, share.view(-1, B), rows, {}, {}), at
        drawn, augmenting = separate({name: t[h, slot.first] for name, t in table.draws.items()})
        inputs = augment(x[a:b], augmenting)
        return Batch(inputs, labels.between(a, b), real, share, rows, drawn, slot.site_stats), at

    def _local(self, slot: SiteSlot, h: int, batch: Batch) -> tuple[Tensor, Any]:
        """Make `Algorithm.local_step` and copy the new optimizer state to its fixed addresses."""
        spec, opt_state = self.population.spec, dict(slot.opt_state)
        step = spec.local.step(slot.net, batch, slot.down, slot.memory, opt_state, self.lr)
        if self.table.keyed:
            slot.net.begin_step(self.table.keys[h, slot.first], batch.real if self.padded else None)
        slot.net.train(True)
        if self.step_loss is not None:
            loss, out = self.step_loss(spec.algorithm, spec.objective, step)
            spec.algorithm.move(spec.algorithm.gradient(loss, step), step)
        else:
            loss, out = spec.algorithm.local_step(spec.objective, step)
        for name, t in opt_state.items():
            if t is not slot.opt_state[name]:
                slot.opt_state[name].copy_(t)
        return loss.detach(), out

    @torch.no_grad()
    def _update_rows(self, slot: SiteSlot, batch: Batch, out: Any, at: Tensor) -> None:
        slot.net.train(False)
        for name, values in self.population.spec.objective.update_rows(slot.net, batch, out).items():
            self.scratch[name].index_copy_(0, at, values)

    # -- a round ----------------------------------------------------------------------------------------------------

    def train(self, sites: Sequence[int], staged: Staged, downs: Sequence[Tree], lr: float) -> None:
        """Launch a round's steps; the host does not wait for them."""
        self._load(sites, downs)
        if isinstance(self.lr, Tensor):
            self.lr.fill_(lr)
        for number in range(staged.blocks):
            self.table.turn(staged, number)
            self.replay()
        self.losses /= self.table.counts

    def _load(self, sites: Sequence[int], downs: Sequence[Tree]) -> None:
        """Copy what the sites start from to its fixed addresses."""
        state, layout = self.population.state, self.population.spec.layout
        for name, t in self.down.items():
            fill_rows(t, [down[name] for down in downs])
        w, buffers, cut = self.down["w"], self.down["buffers"], layout.trainable - layout.shared
        kept = [state.kept_at(k) for k in sites]
        if layout.size > layout.shared:  # there are personal numbers or buffers
            personal = torch.stack([own for own, _ in kept]).to(self.W.device)
            torch.cat((w, personal[:, :cut], buffers, personal[:, cut:]), 1, out=self.W)
        else:
            self.W.copy_(w)
        for name, t in self.memory.items():
            t.copy_(torch.stack([memory[name] for _, memory in kept]))
        for name, t in self.site_stats.items():
            fill_rows(t, [self.population.site(k).data.site_stats[name] for k in sites])
        for k in sites:
            for name, t in self.rows_of(k).items():
                t.copy_(self.population.state.rows[name][slice(*self.population.federation.starts[k : k + 2])])
        self._start()
        self.losses.zero_()

    def _start(self) -> None:
        spec = self.population.spec
        if "init_optimizer" not in spec.algorithm.overridden:
            for t in self.opt_state.values():
                t.zero_()
            return
        fresh = [spec.local.init_optimizer(spec.algorithm, s.net.w, s.down, s.memory) for s in self.slots]
        for name, t in self.opt_state.items():
            fill_rows(t, [one[name] for one in fresh])

    def results(self, work: Sequence[Assignment], lr: float) -> list[LocalResult]:
        """Return every site after its last step; `lr`: the learning rate of the round."""
        for slot in self.slots:
            slot.net.begin_step(None)
            slot.net.train(False)
        pairs = zip(self.slots, work, strict=True)
        return [LocalResult(s.net, s.opt_state, s.down, s.memory, one.steps, lr) for s, one in pairs]

    def rows_of(self, site: int) -> Tree:
        """Return what is now remembered about a site's examples, as views."""
        if not self.scratch:
            return {}
        a, b = self.population.federation.starts[site : site + 2]
        return {name: t[a:b] for name, t in self.scratch.items()}

    def sound(self, sites: Sequence[int]) -> Tensor:
        """Return whether all numbers of each site and of its examples are finite."""
        sound = torch.isfinite(self.W).all(1)
        for t in self.scratch.values():
            bad = (~torch.isfinite(t.reshape(len(t), -1)).all(1)).cumsum(0)
            bad = torch.cat([bad.new_zeros(1), bad])[self.starts]
            sound = sound & (bad[1:] == bad[:-1])[list(sites)]
        return sound


def depth(network: nn.Module) -> int:
    """Return the number of layers with weights."""
    return sum(any(True for _ in module.parameters(recurse=False)) for module in network.modules())


def block_size(steps: int, sites: int, depth: int) -> int:
    """Return the number of steps in one graph: a whole round, or a part of it where the graph would grow too large."""
    most = max(1, min(steps, min(CAPTURED, LAYERS // max(1, depth)) // sites))
    return next((size for size in range(most, most // 4, -1) if steps % size == 0), most)
