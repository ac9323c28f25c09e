"""What happens at one site: answer an exchange, be evaluated, tell the labels it worked out. Runs in any process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, Self

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult, SiteContext
from imperfed.core.exchange import Exchange
from imperfed.core.federation import Federation
from imperfed.core.network import Layout, Net
from imperfed.core.objective import Objective
from imperfed.engine.local_training import Local, Plan, SiteData, batches, plan, train_locally
from imperfed.engine.seeds import generator, seeded
from imperfed.engine.state import Groups, State

Scores = dict[str, tuple[float, int]]
"""A metric's value and the number of examples it is of."""


class ModelEvaluator(Protocol):
    """What the engine knows of evaluation: it hands over a network and gets figures."""

    @property
    def sites(self) -> int:
        """The number of sites with a test set of their own."""

    def site(self, site: int, net: Net) -> Scores:
        """Figures of a network on one site's own test set."""

    def common(self, net: Net) -> Scores:
        """Figures of a network on the test set of no site in particular; empty where there is none."""

    def to(self, device: torch.device) -> Self:
        """With its inputs on a device."""


@dataclass(frozen=True)
class RunSpec:
    """All that stays the same during a run."""

    algorithm: Algorithm
    objective: Objective
    federation: Federation
    layout: Layout
    local: Local
    seed: int
    evaluator: ModelEvaluator
    key: bytes = b""
    """A secret that the sites share; empty where all are in one process."""

    @cached_property
    def groups(self) -> Groups:
        """Which sites share a model."""
        return Groups.of(self.federation)

    @cached_property
    def shared_key(self) -> bytes:
        """What all sites know and the server does not; in one process it follows from the seed."""
        return self.key or hashlib.sha256(f"{self.seed} known to the sites".encode()).digest()

    def home(self, site: int) -> int:
        """The training site whose model an evaluated site uses: itself, unless all rows were gathered."""
        return 0 if self.algorithm.pools_data else site


@dataclass
class SiteRuntime:
    """A process's place of work: the job, the shared state, and one network that is loaded for each site in turn."""

    spec: RunSpec
    state: State
    net: Net

    def site_data(self, site: int) -> SiteData:
        """A site's own data, as views."""
        return self.rows(*self.spec.federation.starts[site : site + 2])

    def rows(self, a: int, b: int) -> SiteData:
        """The data of the rows a .. b - 1, as views."""
        fed = self.spec.federation
        labels, rows = fed.labels.between(a, b), {name: t[a:b] for name, t in self.state.rows.items()}
        return SiteData(fed.inputs(a, b), labels, rows, self.spec.objective.site_stats(labels))

    def down(self, site: int, opening: bool = False) -> Tree:
        """What a site receives; before round 0 no more than the model."""
        group, place = self.spec.groups.homes[site]
        server = self.state.servers[group]
        model = {"w": server["w"], "buffers": server["buffers"]}
        return model if opening else model | self.spec.algorithm.send(server, place)

    def memory(self, site: int) -> Tree:
        """What a site remembers, where its network is."""
        return {name: t[site].to(self.net.row.device) for name, t in self.state.memory.items()}

    def move_to(self, device: torch.device) -> None:
        """Move to a device, with the data and the server's memory; what sites keep stays in the host's memory."""
        spec = self.spec
        self.spec = replace(spec, federation=spec.federation.to(device), evaluator=spec.evaluator.to(device))
        self.state.move_to(device)
        self.net = Net(self.net.module.to(device), spec.layout)

    def load_site(self, site: int, w: Tensor, buffers: Tensor) -> Net:
        """The network with these shared numbers and the site's personal ones, in evaluation mode."""
        self.net.train(False)  # a site that failed may have left it otherwise
        return self.net.load(self.spec.layout.join(w, buffers, self.state.personal[site]))


@dataclass(frozen=True)
class SiteUpdate:
    """What a site sends, and what it keeps if its answer is accepted."""

    up: Tree
    loss: float
    personal: Tensor
    memory: Tree
    rows: Tree

    def fault(self, state: State) -> str | None:
        """Why this answer must be refused, if it must."""
        return self.misshapen(state) or self.not_finite()

    def misshapen(self, state: State) -> str | None:
        """Which part has a name or a shape that it had not before, if one has."""
        model = {name: self.up[name] for name in ("w", "buffers") if name in self.up}
        memory = {name: t[0] for name, t in state.memory.items()}
        for tree, like in ((model, state.servers[0]), (self.memory, memory)):
            for name, t in tree.items():
                if name not in like:
                    return f"{name!r} was never opened"
                if t.shape != like[name].shape:
                    return f"{name!r} has shape {tuple(t.shape)}, expected {tuple(like[name].shape)}"
        return None

    def not_finite(self) -> str | None:
        """Which part is not finite, if one is not."""
        for tree in (self.up, {"personal weights": self.personal}, self.memory, self.rows):
            for name, t in tree.items():
                if not torch.isfinite(t).all():
                    return f"{name!r} is not finite"
        return None

    def keep(self, runtime: SiteRuntime, site: int) -> None:
        """Commit what stays at the site."""
        state, data = runtime.state, runtime.site_data(site)
        state.personal[site].copy_(self.personal)
        for name, t in self.memory.items():
            state.memory[name][site].copy_(t)
        for name, t in self.rows.items():
            data.rows[name].copy_(t)


def site_context(
    runtime: SiteRuntime, site: int, p: Plan, opening: bool = False, seated: Net | None = None
) -> SiteContext:
    """A site with its network at the weights it received and the first batch of a plan."""
    spec, down, data = runtime.spec, runtime.down(site, opening), runtime.site_data(site)
    net = seated or runtime.load_site(site, down["w"], down["buffers"])
    first = Plan(p.rows[:1], {name: t[:1] for name, t in p.draws.items()})
    _, batch = next(batches(data, data.rows, first, pad=False))
    memory, steps, decay = runtime.memory(site), spec.local.steps_of(len(data.x)), spec.local.weight_decay
    return SiteContext(
        net, spec.objective, data.x, data.labels, data.rows, down, memory, batch, spec.shared_key, steps, decay
    )


def train(runtime: SiteRuntime, round: int, site: int) -> SiteUpdate:
    """A site's local training in one round."""
    spec, data, down = runtime.spec, runtime.site_data(site), runtime.down(site)
    p = plan(spec.algorithm, spec.local, len(data.x), generator(spec.seed, round, site, "batches"))
    memory = runtime.memory(site)
    if type(spec.algorithm).prepare is not Algorithm.prepare:
        down = spec.algorithm.prepare(site_context(runtime, site, p))
    net = runtime.load_site(site, down["w"], down["buffers"])
    done, loss, rows = train_locally(spec.algorithm, spec.objective, net, data, p, down, memory, spec.local)
    return answer_of(runtime, done, float(loss), rows)


def answer_of(runtime: SiteRuntime, done: LocalResult, loss: float, rows: Tree) -> SiteUpdate:
    """What a site sends and keeps after its last step."""
    layout, row = runtime.spec.layout, done.net.row
    extra, memory = runtime.spec.algorithm.reply(done)
    up = {"w": row[: layout.shared].clone(), "buffers": layout.buffers(row).clone()} | extra
    return SiteUpdate(up, loss, layout.personal(row), memory, rows)


def consult(
    runtime: SiteRuntime,
    round: int,
    site: int,
    exchange: Exchange,
    answer: Callable[[SiteContext], Tree],
    seated: Net | None = None,
) -> SiteUpdate:
    """A site's answer in an exchange that is not training; it keeps nothing. Round -1: an opening exchange.

    `seated`: a network that holds the site's row already.
    """
    spec, n = runtime.spec, len(runtime.site_data(site).x)
    draw = generator(spec.seed, round, site, exchange.name)
    p = plan(spec.algorithm, Local(steps=1, batch=spec.local.batch), n, draw)
    desk = site_context(runtime, site, p, round < 0, seated)
    return SiteUpdate(answer(desk), 0.0, runtime.state.personal[site], {}, {})


def respond(runtime: SiteRuntime, round: int, number: int, site: int) -> SiteUpdate:
    """A site's answer to the exchange of this number in this round."""
    spec = runtime.spec
    exchange = spec.algorithm.exchanges(round)[number]
    with seeded(spec.seed, round, site, f"layers {exchange.name}"):
        if exchange.respond is None:
            return train(runtime, round, site)
        return consult(runtime, round, site, exchange, exchange.respond)


def load_model(runtime: SiteRuntime, site: int) -> Net:
    """The network with which an evaluated site predicts."""
    home = runtime.spec.home(site)
    group, place = runtime.spec.groups.homes[home]
    return runtime.load_site(home, *runtime.spec.algorithm.model(runtime.state.servers[group], place))


def evaluate(runtime: SiteRuntime, site: int) -> Scores:
    """Figures of a site's model on its own test set."""
    return runtime.spec.evaluator.site(site, load_model(runtime, site))


def evaluate_common(runtime: SiteRuntime) -> Scores:
    """Figures of the global model on the common test set; empty where either does not exist."""
    if (
        runtime.state.personal.shape[1] > 0
        or len(runtime.state.servers) > 1
        or not runtime.spec.algorithm.has_global_model
    ):
        return {}
    server = runtime.state.server
    return runtime.spec.evaluator.common(runtime.load_site(0, server["w"], server["buffers"]))


@torch.no_grad()
def infer_labels(runtime: SiteRuntime, site: int, net: Net | None = None) -> Tensor | None:
    """The probabilities of the labels that a training site worked out for its own rows; `net`: with its model."""
    data, net = runtime.site_data(site), net or load_model(runtime, site)
    logits = torch.cat([net(x) for x in data.x.split(1024)])
    return runtime.spec.objective.infer_labels(logits, data.labels, data.rows)
