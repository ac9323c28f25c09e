"""The training recipe of a run, and the only local training loop."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Literal

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Batch, Tree
from imperfed.core.context import LocalResult, LocalStep, Optimizer
from imperfed.core.errors import UsageError, not_negative, positive, unknown
from imperfed.core.labels import Labels
from imperfed.core.network import Net
from imperfed.core.objective import Objective
from imperfed.core.rates import Rate
from imperfed.core.step_layers import step_keys
from imperfed.engine.gathering import gathered
from imperfed.nn.augment import AUGMENTATIONS, augment, draw_augmentations, separate
from imperfed.nn.optimizers import AdamOptimizer


@dataclass(frozen=True)
class Local:
    """How a site trains in a round."""

    steps: int = 40  # tau
    epochs: int = 0  # if positive, this many passes over a site's rows instead of a fixed number of steps
    min_steps: int = 0  # with epochs: a small site makes at least this many steps
    max_steps: int = 0  # with epochs: a large site makes at most this many steps; 0: as many as there are
    batch: int = 32
    lr: float = 0.01  # eta; adam and adamw usually need less, such as 0.001
    momentum: float = 0.9  # of sgd
    weight_decay: float = 0.0  # added to the gradient; of adamw: decoupled from it
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"  # its state starts at zero in every round
    schedule: Literal["constant", "cosine", "step"] = "constant"  # of lr over the rounds; within a round it is constant
    warmup: int = 0  # rounds in which lr rises linearly, before the schedule begins
    decay_every: int = 10  # schedule=step: rounds after which lr is multiplied by decay
    decay: float = 0.1  # schedule=step: the factor
    clip: float = 0.0  # largest L2 norm of a step's gradient, before weight decay; 0: any
    augment: str = ""  # random changes of images in training: crop, flip, or crop,flip (also crop+flip)

    def __post_init__(self) -> None:
        positive("local", steps=self.steps, batch=self.batch, lr=self.lr, decay_every=self.decay_every)
        positive("local", decay=self.decay)
        not_negative("local", epochs=self.epochs, momentum=self.momentum, weight_decay=self.weight_decay)
        not_negative("local", min_steps=self.min_steps, max_steps=self.max_steps)
        if (self.min_steps or self.max_steps) and not self.epochs:
            raise UsageError("local.min_steps and local.max_steps bound the steps of local.epochs; set local.epochs")
        if 0 < self.max_steps < self.min_steps:
            raise UsageError(f"local.min_steps ({self.min_steps}) is above local.max_steps ({self.max_steps})")
        not_negative("local", warmup=self.warmup, clip=self.clip)
        for name in self.augmentations:
            if name not in AUGMENTATIONS:
                raise unknown("name in local.augment", name, AUGMENTATIONS)

    def steps_of(self, n: int) -> int:
        """Return the number of local steps of a site with n rows."""
        if not self.epochs:
            return self.steps
        steps = max(self.epochs * -(-n // self.batch), self.min_steps)
        return min(steps, self.max_steps) if self.max_steps else steps

    @property
    def augmentations(self) -> tuple[str, ...]:
        """The names in `augment`."""
        return tuple(name.strip() for name in re.split("[,+]", self.augment)) if self.augment else ()

    # -- the learning rate ----------------------------------------------------------------------------------------

    @property
    def lr_is_constant(self) -> bool:
        """Whether the learning rate is the same in every round."""
        return self.schedule == "constant" and self.warmup == 0

    def in_round(self, round: int, rounds: int) -> Local:
        """Return the recipe of one round of so many: its learning rate is that of the round."""
        if self.lr_is_constant:
            return self
        return replace(self, lr=self.lr * self._share(round, rounds), schedule="constant", warmup=0)

    def _share(self, round: int, rounds: int) -> float:
        """Return the share of `lr` that a round has: 1/(W+1) .. W/(W+1) in W rounds of warm-up, then 1, falling."""
        if round < self.warmup:
            return (round + 1) / (self.warmup + 1)
        since = round - self.warmup
        if self.schedule == "cosine":
            return 0.5 * (1 + math.cos(math.pi * since / (rounds - self.warmup)))  # above 0 in the last round too
        return self.decay ** (since // self.decay_every) if self.schedule == "step" else 1.0

    # -- a step ---------------------------------------------------------------------------------------------------

    @cached_property
    def made_optimizer(self) -> Optimizer | None:
        """The optimizer; None: SGD with momentum, or a method's own steps."""
        if self.optimizer == "sgd":
            return None
        return AdamOptimizer(self.weight_decay if self.optimizer == "adamw" else 0.0)

    def init_optimizer(self, algorithm: Algorithm, w: Tensor, down: Tree, memory: Tree) -> Tree:
        """Return the optimizer's state at the start of a round."""
        optimizer = self.made_optimizer
        return algorithm.init_optimizer(w, down, memory) if optimizer is None else optimizer.init(w)

    def step(self, net: Net, batch: Batch, down: Tree, memory: Tree, opt_state: Tree, lr: Rate) -> LocalStep:
        """Return one local step of this recipe."""
        decay = 0.0 if self.optimizer == "adamw" else self.weight_decay
        return LocalStep(net, batch, down, memory, opt_state, lr, self.momentum, decay, self.clip, self.made_optimizer)


STRETCH = 1 << 21
"""The most input numbers that are gathered at once: 8 MB."""


@dataclass(frozen=True)
class Plan:
    """Which rows a site visits in a round, and its random numbers, all known before the round starts."""

    rows: Tensor
    """[steps, B]; a padding slot holds n, one past the last row."""
    draws: Tree
    sites: int = 1
    """The number of sites whose batches lie side by side in a row, with B / sites slots each."""
    seed: int = 0
    """What the random numbers of the network's layers follow from."""

    def keys(self, device: torch.device) -> Tensor:
        """Return the key of every step, from which its dropout masks follow."""
        return step_keys(self.seed, len(self.rows)).to(device)


def plan(algorithm: Algorithm, objective: Objective, local: Local, n: int, generator: torch.Generator) -> Plan:
    """Plan passes over the rows in random order, each cut into the fewest batches, whose sizes differ by one at most.

    Cut this way, no batch of three or more is left with a single row, on which batch normalisation would fail.
    """
    steps, size = local.steps_of(n), local.batch
    cuts = -(-n // size)
    passes = torch.full((-(-steps // cuts), cuts * size), n)
    for one_pass in passes:
        one_pass[filled_slots(n, size)] = torch.randperm(n, generator=generator)
    # First what the method draws: nothing that is added to it may change that.
    draws = algorithm.draws(steps, size, generator) | objective.draws(steps, size, generator)
    draws |= draw_augmentations(local.augmentations, steps, size, generator)
    return Plan(passes.view(-1, size)[:steps], draws, seed=generator.initial_seed())


@lru_cache(maxsize=4096)
def filled_slots(n: int, size: int) -> Tensor | slice:
    """Return the slots of a pass over n rows that hold a row; the others pad the batches to one size."""
    cuts = -(-n // size)
    if cuts * size == n:
        return slice(None)
    ends = torch.arange(cuts + 1) * n // cuts
    return (torch.arange(size) < ends.diff().unsqueeze(1)).flatten().nonzero().flatten()


def widen(plan: Plan, n: int, extra: int) -> Plan:
    """Return the same plan with `extra` more padding slots per batch; it must train to the same weights."""
    steps = len(plan.rows)
    rows = torch.cat([plan.rows, plan.rows.new_full((steps, extra), n)], 1)
    draws = {
        name: t if t.ndim == 1 else torch.cat([t, t.new_zeros(steps, extra, *t.shape[2:])], 1)
        for name, t in plan.draws.items()
    }
    return Plan(rows, draws, seed=plan.seed)


@dataclass(frozen=True)
class SiteData:
    """A site's own data and what it remembers about each row."""

    x: Tensor
    labels: Labels
    rows: Tree
    """Views of the engine's memory, [n, ...]; written only after a round has succeeded."""
    site_stats: Tree = field(default_factory=dict)
    """What the objective knows about all labels together."""


def batches(data: SiteData, rows: Tree, plan: Plan, pad: bool) -> Iterator[tuple[Tensor, Batch]]:
    """Yield the batches of a plan. Without `pad`, padding slots are cut off, which must make no difference."""
    n, size, device = len(data.x), plan.rows.shape[1], data.x.device
    drawn, augmenting = separate({name: t.to(device) for name, t in plan.draws.items()})
    filled = (plan.rows < n).sum(1).tolist()
    # The inputs of many steps are gathered at once, as far as they fit a cache: one large copy is cheaper than many.
    stretch = max(1, STRETCH // (size * data.x.shape[1:].numel()))
    stretches = [plan.rows[first : first + stretch].to(device) for first in range(0, len(plan.rows), stretch)]
    wanted = [slots.clamp(max=n - 1).view(-1) for slots in stretches]
    for number, (slots, at, x) in enumerate(zip(stretches, wanted, gathered(data.x, wanted), strict=True)):
        first, labels = number * stretch, data.labels.take(at)
        x = augment(x, {name: t[first : first + stretch].flatten(0, 1) for name, t in augmenting.items()})
        real = (slots < n).to(data.x.dtype)
        per_site = real if plan.sites == 1 else real.view(len(real), plan.sites, -1)
        share = per_site / per_site.sum(-1, keepdim=True)
        for step, (index, real_h, share_h) in enumerate(
            zip(slots.unbind(), real.unbind(), share.unbind(), strict=True)
        ):
            h, a = first + step, step * size
            m = size if pad else filled[h]
            if m < size:
                index, real_h, share_h = index[:m], real_h[:m], share_h[:m]
            memory = {name: t.index_select(0, index) for name, t in rows.items()}
            draws = {name: t[h] if t.ndim == 1 else t[h, :m] for name, t in drawn.items()}
            yield index, Batch(x[a : a + m], labels.between(a, a + m), real_h, share_h, memory, draws, data.site_stats)


def train_locally(
    algorithm: Algorithm,
    objective: Objective,
    net: Net,
    data: SiteData,
    plan: Plan,
    down: Tree,
    memory: Tree,
    local: Local,
    pad: bool = False,
) -> tuple[LocalResult, Tensor, Tree]:
    """Train `net`, which holds the site's row; return the result, the mean loss and the new memory of the rows.

    `local` is that of the round: its learning rate is used as it is.
    """
    scratch = {name: torch.cat([t, torch.zeros_like(t[:1])]) for name, t in data.rows.items()}
    opt_state = local.init_optimizer(algorithm, net.w, down, memory)
    losses = []
    keys = plan.keys(data.x.device) if net.step_layers else None
    net.train(True)
    for h, (index, batch) in enumerate(batches(data, scratch, plan, pad)):
        if keys is not None:
            net.begin_step(keys[h], batch.real if pad else None)
        loss, out = algorithm.local_step(objective, local.step(net, batch, down, memory, opt_state, local.lr))
        losses.append(loss)
        if scratch:
            net.train(False)
            with torch.no_grad():
                new = objective.update_rows(net, batch, out)
            for name, values in new.items():
                scratch[name].index_copy_(0, index, values)
            net.train(True)
    net.train(False)
    if keys is not None:
        net.begin_step(None)
    done = LocalResult(net, opt_state, down, memory, len(losses), local.lr)
    return done, torch.stack(losses).mean(0), {name: t[:-1] for name, t in scratch.items()}
