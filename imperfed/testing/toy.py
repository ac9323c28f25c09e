"""Toy federations for every kind of labels, a tiny network, and an engine that keeps what the sites sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softmax

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Batch, Tree
from imperfed.core.context import ServerContext
from imperfed.core.exchange import Exchange, Updates, WeightedGradient
from imperfed.core.federation import Federation, Trusted
from imperfed.core.labels import Annotated, Candidates, Exact, Labels, Memberships, Positive, Positives, Probabilities
from imperfed.core.network import Network
from imperfed.core.objective import Objective
from imperfed.data.oracle import Oracle
from imperfed.engine.backends.cuda.graph_backend import CudaGraphBackend
from imperfed.engine.backends.process import ProcessBackend
from imperfed.engine.backends.sequential import SequentialBackend
from imperfed.engine.engine import Engine, MakeBackend
from imperfed.engine.local_training import Local
from imperfed.engine.population import Population
from imperfed.engine.schedule import RoundReport, Rounds
from imperfed.evaluation.evaluator import Evaluator

INPUTS, CLASSES = 6, 4
SIZES = (12, 20, 31, 26)
LOCAL = Local(steps=5, batch=8, lr=0.05, momentum=0.9, weight_decay=0.01)


def rows_of(kind: type[Labels], n: int, draw: torch.Generator) -> tuple[Tensor, Tensor, Labels]:
    """Return inputs, truth and imperfect labels: separated Gaussians, or a sum of them where classes may coincide."""
    centres = 4 * torch.eye(CLASSES, INPUTS)
    noise = 0.5 * torch.randn(n, INPUTS, generator=draw)
    luck = torch.rand(n, CLASSES, generator=draw)
    y = torch.randint(CLASSES, (n,), generator=draw)
    truth = torch.eye(CLASSES, dtype=torch.bool)[y]
    if kind in (Exact, Candidates, Memberships, Probabilities):
        sets = truth | (luck < 0.3)
        by_kind: dict[type[Labels], Labels] = {
            Exact: Exact(y, CLASSES),
            Candidates: Candidates(sets, CLASSES),
            Memberships: Memberships((truth + 0.5 * (sets & ~truth)).float(), CLASSES),
            Probabilities: Probabilities((0.6 * truth + 0.4 * sets / sets.sum(1, keepdim=True)).float(), CLASSES),
        }
        return centres[y] + noise, y, by_kind[kind]
    present = truth | (torch.rand(n, CLASSES, generator=draw) < 0.3)
    labels: Labels
    if kind is Positive:
        labels = Positive(y, CLASSES)
    elif kind is Positives:
        labels = Positives(present & (luck < 0.8), CLASSES)
    else:
        labels = Annotated(torch.where(luck < 0.7, present.to(torch.int8), -1).to(torch.int8), CLASSES)
    return present.float() @ centres + noise, present.to(torch.int8), labels


def world(kind: type[Labels], sizes: tuple[int, ...] = SIZES, seed: int = 0) -> tuple[Federation, Oracle]:
    """Return a federation of these sizes and the truth about it, with 40 test rows per site."""
    draw = torch.Generator().manual_seed(seed)
    n = sum(sizes)
    x, truth, labels = rows_of(kind, n, draw)
    tests = [rows_of(kind, 40, draw)[:2] for _ in sizes]
    starts = tuple(sum(sizes[:k]) for k in range(len(sizes) + 1))
    names = tuple(f"site{k}" for k in range(len(sizes)))
    public = torch.randn(16, INPUTS, generator=draw)
    classes = tuple("abcd"[:CLASSES])
    trusted_x, trusted_y, _ = rows_of(Exact, 24, draw)
    federation = Federation(
        "toy",
        x,
        labels,
        starts,
        names,
        classes,
        tuple(map(str, range(n))),
        public,
        trusted=Trusted(trusted_x, Exact(trusted_y, CLASSES)),
    ).check()
    return federation, Oracle(truth, tuple(t[0] for t in tests), tuple(t[1] for t in tests))


def as_images(data: tuple[Federation, Oracle]) -> tuple[Federation, Oracle]:
    """Return the same rows as images of one channel and 2 x 3 pixels."""
    federation, oracle = data

    def image(x: Tensor) -> Tensor:
        return x.view(-1, 1, 2, INPUTS // 2)

    trusted = federation.trusted and replace(federation.trusted, x=image(federation.trusted.x))
    images = replace(federation, x=image(federation.x), public=image(federation.public), trusted=trusted)
    return images, replace(oracle, test_x=tuple(map(image, oracle.test_x)))


def network(*layers: nn.Module, images: bool = False) -> Network:
    """Return a network of 8 hidden units with the same weights every time; `layers` follow the first layer."""
    flatten = [nn.Flatten()] if images else []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Network(nn.Sequential(*flatten, nn.Linear(INPUTS, 8), *layers, nn.Tanh()), nn.Linear(8, CLASSES))


@dataclass(frozen=True)
class Plain(Objective):
    """Cross-entropy that remembers what it last predicted for every example."""

    name: ClassVar[str] = "plain"
    labels: ClassVar[type[Labels]] = Exact

    def init_rows(self, labels: Exact) -> Tree:
        return {"p": torch.full((len(labels), labels.classes), 1 / labels.classes)}

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        z = net(batch.x)
        return cross_entropy(z, batch.labels.values, reduction="none"), softmax(z.detach(), -1)

    def update_rows(self, net: Callable[[Tensor], Tensor], batch: Batch, out: Any) -> Tree:
        return {"p": out}


@dataclass(frozen=True)
class OneStep(Algorithm):
    """A plain step on the mean gradient: FedSGD."""

    name: ClassVar[str] = "one-step"

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (WeightedGradient("step", self.merge, weights=lambda n: n / n.sum()),)

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        return server | {"w": server["w"] - context.lr * updates["g"][0]}


class Direct:
    """A capturer that records nothing: it does the work whenever asked, one piece after the other."""

    def side_by_side(self, work: Callable[[int], Any], count: int) -> list[Any]:
        return [work(m) for m in range(count)]

    def capture(self, work: Callable[[], None], trial: Callable[[], None]) -> Callable[[], None]:
        trial()  # as before a real record: nothing of it may be seen later
        return work


def one_by_one(population: Population, on_duty: int, workers: int) -> SequentialBackend:
    """Make the backend that asks one site after the other."""
    return SequentialBackend(population)


def step_by_step(population: Population, on_duty: int, workers: int) -> CudaGraphBackend:
    """Make the backend of a GPU, its program carried out on the host."""
    return CudaGraphBackend(population, on_duty, Direct())


class Watched(Engine):
    """An engine that keeps the answers of every exchange, and the reports."""

    def __init__(self, *parts: Any, **named: Any) -> None:
        self.seen: list[Updates] = []
        self.reports: list[RoundReport] = []
        super().__init__(*parts, **named)

    def exchange(self, round: int, number: int, exchange: Exchange, report: RoundReport) -> Updates:
        updates = super().exchange(round, number, exchange, report)
        self.seen.append(updates)
        return updates

    def go(self, checkpoint: Path | None = None, stop_after: int = 10**9) -> Watched:
        """Run to the end, or until so many rounds are done, and shut the workers down."""
        try:
            self.run(self.reports.append, lambda: self.state.round >= stop_after, checkpoint)
        finally:
            self.close()
        return self


def engine(
    algorithm: Algorithm,
    objective: Objective,
    data: tuple[Federation, Oracle],
    local: Local = LOCAL,
    net: Network | None = None,
    seed: int = 0,
    make_backend: MakeBackend = ProcessBackend,
    **rounds: Any,
) -> Watched:
    """Return an engine of two rounds in the calling process, unless set otherwise."""
    federation, oracle = data
    how = Rounds(**({"rounds": 2, "workers": 1} | rounds))
    return Watched(
        algorithm, objective, net or network(), federation, Evaluator(oracle), local, how, seed, None, make_backend
    )


def everything(engine: Engine) -> Tree:
    """Return all that a run remembers and every site's model, copied."""
    tree = {name: t.clone() for name, t in engine.state.flat().items()}
    for k in range(engine.population.evaluator.sites):
        tree |= {f"model {k}/{name}": t for name, t in engine.model(k).items()}
    return tree


def differences(a: Tree, b: Tree, tolerance: float = 0.0) -> list[str]:
    """Return the names under which two trees differ: by a bit, or by more than the tolerance."""
    if a.keys() != b.keys():
        return sorted(a.keys() ^ b.keys())
    if tolerance:
        return [name for name in a if not torch.allclose(a[name], b[name], rtol=tolerance, atol=tolerance)]
    return [name for name in a if not torch.equal(a[name], b[name])]
