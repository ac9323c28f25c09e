"""What happens at one site: it trains, answers queries and infers labels. The same code runs in every backend."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult, SiteContext
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Exchange, Query, Train
from imperfed.core.federation import HeldOut
from imperfed.core.labels.validity import UNKNOWN, Validity
from imperfed.core.mechanism import PrivacyMechanism
from imperfed.core.network import Layout, Net
from imperfed.core.objective import Objective
from imperfed.engine.failures import Failure
from imperfed.engine.gathering import in_parts
from imperfed.engine.local_training import Local, Plan, SiteData, batches, plan, train_locally
from imperfed.engine.seeds import generator, seeded
from imperfed.engine.validate import check_finite, check_memory, check_shapes, expected_parts

OPENING = -1
"""The round of the exchanges before round 0."""
NoiseKey = Callable[[int, int, Tensor], bytes]
"""From a round, a site's number and the weights that it trained to the key of the noise on them."""


@dataclass(frozen=True)
class RunSpec:
    """What stays the same during a run and is known at every site."""

    algorithm: Algorithm
    objective: Objective
    layout: Layout
    local: Local
    seed: int
    key: bytes = b""
    """A secret that the sites share; empty where all sites are in one process."""
    rounds: int = 1
    """The number of rounds, over which the learning rate may change."""
    questions: tuple[Query, ...] = ()
    """What a defence asks the sites before round 0."""
    privacy: PrivacyMechanism | None = None
    noise_key: NoiseKey | None = None
    """A real site's own keys; None where all sites are in one process and the keys follow from the seed."""

    @cached_property
    def shared_key(self) -> bytes:
        """A key that all sites know and the server does not; in one process it is derived from the seed."""
        return self.key or hashlib.sha256(f"{self.seed} known to the sites".encode()).digest()

    def simulated_key(self, round: int, site: int, w: Tensor) -> bytes:
        """Return the key of a site's noise in a simulation: anyone who knows the seed can work it out."""
        return hashlib.sha256(f"{self.seed}/{round}/{site}/noise".encode()).digest()

    def local_in(self, round: int) -> Local:
        """Return how the sites train in a round: as `local` says, with the learning rate of the round."""
        return self.local.in_round(min(max(round, 0), self.rounds - 1), self.rounds)

    def opening(self) -> tuple[Query, ...]:
        """Return the exchanges before round 0: those of the algorithm, then those of a defence."""
        return (*self.algorithm.opening(), *self.questions)

    def exchange(self, round: int, number: int) -> Exchange:
        """Return an exchange by its round and its number in that round."""
        exchange = (self.opening() if round == OPENING else self.algorithm.exchanges(round))[number]
        if self.privacy is not None and not isinstance(exchange, Train):
            raise UsageError(f"with privacy={self.privacy.name} sites do not answer {exchange.name!r}: it has no noise")
        return exchange


@dataclass(frozen=True)
class Site:
    """One site: its number, its rows and what it remembers. All tensors may be views of a larger memory."""

    index: int
    """It is part of the seeds, so that a site trains in the same way in any process."""
    data: SiteData
    personal: Tensor
    """Weights and buffers that never leave the site."""
    memory: Tree

    def keep(self, update: SiteUpdate) -> None:
        """Commit what stays at the site, once its answer has been accepted."""
        self.personal.copy_(update.personal)
        for name, t in update.memory.items():
            self.memory[name].copy_(t)
        for name, t in update.rows.items():
            self.data.rows[name].copy_(t)


@dataclass(frozen=True)
class SiteUpdate:
    """What a site sends in an exchange, and what it keeps if its answer is accepted."""

    up: Tree
    loss: float
    personal: Tensor
    memory: Tree
    rows: Tree

    def check(self, memory: Tree, exchange: Exchange, server: Tree) -> Failure | None:
        """Return why this update must be refused, if it must; `memory`: the site's memory before the update."""
        return self.check_shapes(memory, exchange, server) or self.check_finite()

    def check_shapes(self, memory: Tree, exchange: Exchange, server: Tree) -> Failure | None:
        """Compare shapes with the server's model and with the site's memory."""
        return check_shapes(self.up, expected_parts(exchange, server)) or check_memory(self.memory, memory)

    def check_finite(self) -> Failure | None:
        """Look for numbers that are not finite, in what is sent and in what is kept."""
        return check_finite(self.up, {"personal weights": self.personal}, self.memory, self.rows)


@dataclass
class SiteRuntime:
    """The network of a process, loaded with the numbers of one site after another."""

    spec: RunSpec
    net: Net

    def load(self, site: Site, w: Tensor, buffers: Tensor) -> Net:
        """Return the network with these shared numbers and the site's personal ones, in evaluation mode."""
        self.net.train(False)  # a site that failed may have left it in training mode
        return self.net.load(self.spec.layout.join(w, buffers, site.personal))

    def move_to(self, device: torch.device) -> None:
        """Move the network to a device."""
        self.net = Net(self.net.module.to(device), self.spec.layout)

    def memory(self, site: Site) -> Tree:
        """Return what a site remembers, on the device of the network."""
        return {name: t.to(self.net.row.device) for name, t in site.memory.items()}

    def context(self, site: Site, down: Tree, plan: Plan, net: Net | None = None) -> SiteContext:
        """Return the site with its network at the weights received and the first batch of a plan.

        `net`: a network that already holds the site's numbers.
        """
        data, local = site.data, self.spec.local
        first = Plan(plan.rows[:1], {name: t[:1] for name, t in plan.draws.items()})
        _, batch = next(batches(data, data.rows, first, pad=False))
        return SiteContext(
            site.index,
            data.x,
            data.labels,
            down,
            self.memory(site),
            net or self.load(site, down["w"], down["buffers"]),
            self.spec.objective,
            data.rows,
            batch,
            self.spec.shared_key,
            local.steps_of(len(data.x)),
            local.weight_decay,
        )

    def respond(self, site: Site, down: Tree, round: int, number: int, net: Net | None = None) -> SiteUpdate:
        """Return a site's answer to the exchange of this number in this round.

        `net`: one that already holds the site's numbers, for a query.
        """
        exchange = self.spec.exchange(round, number)
        with seeded(self.spec.seed, round, site.index, f"layers {exchange.name}"):
            if isinstance(exchange, Query):
                return self.answer(site, down, round, exchange, net)
            return self.train(site, down, round)

    def start(self, site: Site, down: Tree, plan: Plan) -> Tree:
        """Return what local training starts from."""
        if "prepare" not in self.spec.algorithm.overridden:
            return down
        return self.spec.algorithm.prepare(self.context(site, down, plan))

    def train(self, site: Site, down: Tree, round: int) -> SiteUpdate:
        """Make a site's local steps of one round."""
        spec, n = self.spec, len(site.data.x)
        steps = plan(spec.algorithm, spec.objective, spec.local, n, generator(spec.seed, round, site.index, "batches"))
        memory, sent, down = self.memory(site), down, self.start(site, down, steps)
        net = self.load(site, down["w"], down["buffers"])
        local = spec.local_in(round)
        result, loss, rows = train_locally(spec.algorithm, spec.objective, net, site.data, steps, down, memory, local)
        return self.protected(self.update(result, float(loss), rows), site.index, round, sent)

    def update(self, result: LocalResult, loss: float, rows: Tree) -> SiteUpdate:
        """Return what a site sends and keeps after its last step."""
        layout, row = self.spec.layout, result.net.row
        extra, memory = self.spec.algorithm.reply(result)
        up = {"w": row[: layout.shared].clone(), "buffers": layout.buffers(row).clone()} | extra
        return SiteUpdate(up, loss, layout.personal(row), memory, rows)

    def protected(self, update: SiteUpdate, site: int, round: int, sent: Tree) -> SiteUpdate:
        """Return what may leave a site instead of its update, where the run is private; `sent`: what it received.

        Buffers are statistics of rows, and so is the loss: neither is sent.
        """
        privacy = self.spec.privacy
        if privacy is None:
            return update
        if more := sorted(update.up.keys() - {"w", "buffers"}):
            raise UsageError(f"with privacy={privacy.name} a site sends its weights only, and not {', '.join(more)}")
        w = update.up["w"]
        key = (self.spec.noise_key or self.spec.simulated_key)(round, site, w)
        protected = {"w": privacy.protect(sent["w"], w, key), "buffers": sent["buffers"].clone()}
        return replace(update, up=protected, loss=0.0)

    def answer(self, site: Site, down: Tree, round: int, query: Query, net: Net | None = None) -> SiteUpdate:
        """Return a site's answer to a query; it keeps nothing. `net`: one that already holds the site's numbers."""
        spec = self.spec
        draw = generator(spec.seed, round, site.index, query.name)
        one_step = plan(spec.algorithm, spec.objective, Local(steps=1, batch=spec.local.batch), len(site.data.x), draw)
        up = query.respond(self.context(site, down, one_step, net))
        return SiteUpdate(up, 0.0, site.personal, {}, {})

    def infer_labels(self, site: Site, net: Net) -> Tensor | None:
        """Return the labels that a site infers for its own rows, as probabilities; None if it infers none."""
        logits = logits_of(net, site.data.x)
        return self.spec.objective.infer_labels(logits, site.data.labels, site.data.rows)


@torch.no_grad()
def logits_of(net: Net, x: Tensor) -> Tensor:
    """Return the logits of all rows."""
    return torch.cat([net(part) for part in in_parts(x)])


def validate(net: Net, held: HeldOut, site: int) -> Validity:
    """Return how far a network in evaluation mode agrees with the labels of the rows that a site holds out."""
    x, labels = held.at(site)
    return labels.validity(logits_of(net, x).cpu()) if len(x) else UNKNOWN
