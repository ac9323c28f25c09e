"""What happens at one site: answer an exchange, be evaluated, tell the labels it worked out. Runs in any process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, Self

import torch
from torch import Tensor

from imperfed.core import Algorithm, Desk, Done, Exchange, Objective, Tree
from imperfed.descend import Local, Plan, Shelf, batches, descend, plan
from imperfed.engine.seeds import generator, seeded
from imperfed.engine.state import Groups, State
from imperfed.federation import Federation
from imperfed.network import Layout, Net

Scores = dict[str, tuple[float, int]]
"""A metric's value and the number of examples it is of."""


class Judge(Protocol):
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
class Job:
    """All that stays the same during a run."""

    algorithm: Algorithm
    objective: Objective
    federation: Federation
    layout: Layout
    local: Local
    seed: int
    judge: Judge
    key: bytes = b""
    """A secret that the sites share; empty where all are in one process."""

    @cached_property
    def groups(self) -> Groups:
        """Which sites share a model."""
        return Groups.of(self.federation)

    @cached_property
    def secret(self) -> bytes:
        """What all sites know and the server does not; in one process it follows from the seed."""
        return self.key or hashlib.sha256(f"{self.seed} known to the sites".encode()).digest()

    def home(self, site: int) -> int:
        """The training site whose model an evaluated site uses: itself, unless all rows were gathered."""
        return 0 if self.algorithm.gathers else site


@dataclass
class Bench:
    """A process's place of work: the job, the shared state, and one network that is loaded for each site in turn."""

    job: Job
    state: State
    net: Net

    def shelf(self, site: int) -> Shelf:
        """A site's own data, as views."""
        return self.rows(*self.job.federation.starts[site : site + 2])

    def rows(self, a: int, b: int) -> Shelf:
        """The data of the rows a .. b - 1, as views."""
        fed = self.job.federation
        labels, rows = fed.labels.between(a, b), {name: t[a:b] for name, t in self.state.rows.items()}
        return Shelf(fed.inputs(a, b), labels, rows, self.job.objective.survey(labels))

    def down(self, site: int, opening: bool = False) -> Tree:
        """What a site receives; before round 0 no more than the model."""
        group, place = self.job.groups.homes[site]
        server = self.state.servers[group]
        model = {"w": server["w"], "buffers": server["buffers"]}
        return model if opening else model | self.job.algorithm.send(server, place)

    def memory(self, site: int) -> Tree:
        """What a site remembers, where its network is."""
        return {name: t[site].to(self.net.row.device) for name, t in self.state.memory.items()}

    def settle(self, device: torch.device) -> None:
        """Move to a device, with the data and the server's memory; what sites keep stays in the host's memory."""
        job = self.job
        self.job = replace(job, federation=job.federation.to(device), judge=job.judge.to(device))
        self.state.settle(device)
        self.net = Net(self.net.module.to(device), job.layout)

    def take_place(self, site: int, w: Tensor, buffers: Tensor) -> Net:
        """The network with these shared numbers and the site's personal ones, in evaluation mode."""
        self.net.train(False)  # a site that failed may have left it otherwise
        return self.net.load(self.job.layout.join(w, buffers, self.state.personal[site]))


@dataclass(frozen=True)
class Answer:
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

    def keep(self, bench: Bench, site: int) -> None:
        """Commit what stays at the site."""
        state, shelf = bench.state, bench.shelf(site)
        state.personal[site].copy_(self.personal)
        for name, t in self.memory.items():
            state.memory[name][site].copy_(t)
        for name, t in self.rows.items():
            shelf.rows[name].copy_(t)


def sit_down(bench: Bench, site: int, p: Plan, opening: bool = False, seated: Net | None = None) -> Desk:
    """A site with its network at the weights it received and the first batch of a plan."""
    job, down, shelf = bench.job, bench.down(site, opening), bench.shelf(site)
    net = seated or bench.take_place(site, down["w"], down["buffers"])
    first = Plan(p.rows[:1], {name: t[:1] for name, t in p.draws.items()})
    _, batch = next(batches(shelf, shelf.rows, first, pad=False))
    memory, steps, decay = bench.memory(site), job.local.steps_of(len(shelf.x)), job.local.weight_decay
    return Desk(net, job.objective, shelf.x, shelf.labels, shelf.rows, down, memory, batch, job.secret, steps, decay)


def train(bench: Bench, round: int, site: int) -> Answer:
    """A site's local training in one round."""
    job, shelf, down = bench.job, bench.shelf(site), bench.down(site)
    p = plan(job.algorithm, job.local, len(shelf.x), generator(job.seed, round, site, "batches"))
    memory = bench.memory(site)
    if type(job.algorithm).begin is not Algorithm.begin:
        down = job.algorithm.begin(sit_down(bench, site, p))
    net = bench.take_place(site, down["w"], down["buffers"])
    done, loss, rows = descend(job.algorithm, job.objective, net, shelf, p, down, memory, job.local)
    return answer_of(bench, done, float(loss), rows)


def answer_of(bench: Bench, done: Done, loss: float, rows: Tree) -> Answer:
    """What a site sends and keeps after its last step."""
    layout, row = bench.job.layout, done.net.row
    extra, memory = bench.job.algorithm.reply(done)
    up = {"w": row[: layout.shared].clone(), "buffers": layout.buffers(row).clone()} | extra
    return Answer(up, loss, layout.personal(row), memory, rows)


def consult(
    bench: Bench,
    round: int,
    site: int,
    exchange: Exchange,
    answer: Callable[[Desk], Tree],
    seated: Net | None = None,
) -> Answer:
    """A site's answer in an exchange that is not training; it keeps nothing. Round -1: an opening exchange.

    `seated`: a network that holds the site's row already.
    """
    job, n = bench.job, len(bench.shelf(site).x)
    draw = generator(job.seed, round, site, exchange.name)
    p = plan(job.algorithm, Local(steps=1, batch=job.local.batch), n, draw)
    desk = sit_down(bench, site, p, round < 0, seated)
    return Answer(answer(desk), 0.0, bench.state.personal[site], {}, {})


def respond(bench: Bench, round: int, number: int, site: int) -> Answer:
    """A site's answer to the exchange of this number in this round."""
    job = bench.job
    exchange = job.algorithm.exchanges(round)[number]
    with seeded(job.seed, round, site, f"layers {exchange.name}"):
        if exchange.answer is None:
            return train(bench, round, site)
        return consult(bench, round, site, exchange, exchange.answer)


def load_model(bench: Bench, site: int) -> Net:
    """The network with which an evaluated site predicts."""
    home = bench.job.home(site)
    group, place = bench.job.groups.homes[home]
    return bench.take_place(home, *bench.job.algorithm.model(bench.state.servers[group], place))


def evaluate(bench: Bench, site: int) -> Scores:
    """Figures of a site's model on its own test set."""
    return bench.job.judge.site(site, load_model(bench, site))


def evaluate_common(bench: Bench) -> Scores:
    """Figures of the global model on the common test set; empty where either does not exist."""
    if bench.state.personal.shape[1] > 0 or len(bench.state.servers) > 1 or not bench.job.algorithm.one_model:
        return {}
    server = bench.state.server
    return bench.job.judge.common(bench.take_place(0, server["w"], server["buffers"]))


@torch.no_grad()
def believe(bench: Bench, site: int, net: Net | None = None) -> Tensor | None:
    """The probabilities of the labels that a training site worked out for its own rows; `net`: with its model."""
    shelf, net = bench.shelf(site), net or load_model(bench, site)
    logits = torch.cat([net(x) for x in shelf.x.split(1024)])
    return bench.job.objective.believe(logits, shelf.labels, shelf.rows)
