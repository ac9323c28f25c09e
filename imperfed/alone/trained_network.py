"""A network that a site trains alone: the same loss, model and recipe as federated ones, without the federation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from imperfed.algorithms import objectives
from imperfed.algorithms.local_only import LocalOnly
from imperfed.alone.base import AloneModel, Fitted, ModelPart
from imperfed.alone.examples import Always
from imperfed.core.labels import KINDS, Labels
from imperfed.core.network import Layout, Net
from imperfed.core.objective import Objective
from imperfed.core.temperatures import TEMPERATURES, likelihoods
from imperfed.core.threads import one_thread
from imperfed.engine.local_training import Local, SiteData, plan, train_locally
from imperfed.engine.seeds import generator, seed_of, seeded
from imperfed.engine.site import logits_of
from imperfed.models import ModelSpec, build, models

PATIENCE = 6
"""How many rounds without a better fit of the rows set aside end the training."""
LEAST = 3
"""The fewest rounds to which training is shortened."""
ASIDE, FEWEST = 5, 10
"""One row in so many is set aside to find the best round and the temperature, if that leaves enough of them."""
SHORT = 12
"""The rounds of a site with too few rows for that."""
CONVOLUTIONS = 800
"""About what a pixel costs in the small convolutional network, in multiplications of a linear layer."""
NETWORKS = {1: ("mlp",), 3: ("mlp", "cnn")}
"""What a site's few rows can train, by the dimensions of an input: tables, images; what needs fewest rows first."""


@dataclass(frozen=True)
class TrainedNetwork(Fitted):
    """A network of the catalogue with its weights."""

    form: ClassVar[str] = "network"
    model: Tensor
    """The name of the model, and `kind` that of the labels, as bytes."""
    kind: Tensor
    shape: Tensor
    """Of an input."""
    outputs: Tensor
    """The classes of the federation, and `seen` those that the site knows."""
    seen: Tensor
    row: Tensor
    """The weights."""
    temperature: Tensor

    def probabilities(self, x: Tensor) -> Tensor:
        net = make_net(as_text(self.model), tuple(self.shape.tolist()), int(self.outputs)).load(self.row)
        net.train(False)
        return self.of_logits(logits_of(net, x.view(len(x), *self.shape.tolist()).float()))

    def of_logits(self, logits: Tensor) -> Tensor:
        """Return the probabilities of the classes that the site knows."""
        return KINDS[as_text(self.kind)].probabilities(logits[:, self.seen] / self.temperature)

    def module(self) -> nn.Module:
        return NetworkModule(self)


class NetworkModule(nn.Module):
    """Such a network as a module, for exports."""

    def __init__(self, trained: TrainedNetwork) -> None:
        super().__init__()
        self.trained, self.shape = trained, tuple(trained.shape.tolist())
        net = make_net(as_text(trained.model), self.shape, int(trained.outputs)).load(trained.row)
        self.network = net.module

    def forward(self, x: Tensor) -> Tensor:
        return self.trained.of_logits(self.network(x.view(-1, *self.shape).float()))


def as_bytes(text: str) -> Tensor:
    """Return a name as a tensor."""
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


def as_text(name: Tensor) -> str:
    """Return the name that such a tensor holds."""
    return bytes(name.tolist()).decode()


def make_net(model: str, shape: tuple[int, ...], classes: int, seed: int = 0) -> Net:
    """Return a network with initial weights that depend on the seed alone."""
    network = build(ModelSpec(model), shape, classes, seed)
    return Net(network, Layout.of(network, lambda name: True))


@dataclass(frozen=True)
class NetworkAlone(AloneModel):
    """A network trained by AdamW on the site's own rows, as `local-only` does, with the best round kept."""

    name: ClassVar[str] = "network"
    model: str = "mlp"
    objective: str = ""  # the loss; empty: the first that is made for the labels
    lr: float = 0.003
    decay: float = 0.01
    rounds: int = 60  # the most rounds of training

    @property
    def resolves(self) -> bool:
        return not self.objective or objectives()[self.objective].resolves

    @classmethod
    def grid(cls, kind: type[Labels], shape: tuple[int, ...]) -> tuple[Any, ...]:
        suited = [name for name in NETWORKS.get(len(shape), ("mlp",)) if models()[name].fits(shape)]
        return tuple(cls(model, loss) for model, loss in product(suited, losses_for(kind)))

    @property
    def local(self) -> Local:
        """How it trains in a round: a small site makes several passes, a large one a part of a pass."""
        return Local(epochs=2, min_steps=20, max_steps=100, optimizer="adamw", lr=self.lr, weight_decay=self.decay)

    def shortened(self, share: float) -> NetworkAlone:
        return replace(self, rounds=max(LEAST, int(share * self.rounds)))

    def steps(self, rows: int) -> int:
        """Return how many steps a fit usually takes, of which the second half repeats the first with all rows."""
        return self.rounds * self.local.steps_of(rows)

    def products(self, columns: int, classes: int) -> float:
        """Return about how many multiplications a step takes."""
        per_row = columns * CONVOLUTIONS if self.model == "cnn" else (columns + classes) * ModelSpec().hidden
        return 3.0 * self.local.batch * per_row

    def fit(self, x: Tensor, labels: Labels, seed: int) -> tuple[ModelPart, ...]:
        seen, rest = _told_apart(labels)
        if len(seen) < (1 if labels.several else 2):
            return rest if labels.several else (ModelPart(Always(torch.ones(1)), seen, present=False),)
        with one_thread():
            rounds, temperature = self._best_round(x, labels, seed)
            *_, net = self._trained(x, labels, seed, rounds)
        fitted = TrainedNetwork(
            as_bytes(self.model),
            as_bytes(labels.kind),
            torch.tensor(x.shape[1:]),
            torch.tensor(labels.classes),
            seen.clone(),  # files of tensors refuse two that share their memory
            net.row.clone(),
            torch.tensor(temperature),
        )
        return ModelPart(fitted, seen, present=False), *rest

    def _best_round(self, x: Tensor, labels: Labels, seed: int) -> tuple[int, float]:
        """Return the round and the temperature that fit rows best that were set aside, by the log-likelihood."""
        order = torch.randperm(len(x), generator=generator(seed, 0, 0, "set aside"))
        aside, rest = order[: len(x) // ASIDE], order[len(x) // ASIDE :]
        if len(aside) < FEWEST:
            return min(SHORT, self.rounds), 1.0
        judged, best = labels.take(aside), (-torch.inf, min(SHORT, self.rounds), 1.0)
        for round, net in enumerate(self._trained(x[rest], labels.take(rest), seed, self.rounds), 1):
            net.train(False)
            fits = zip(likelihoods(logits_of(net, x[aside]), judged), TEMPERATURES, strict=True)
            best = max([best, *((fit, round, t) for fit, t in fits)], key=lambda one: one[0])  # the first of equals
            if round - best[1] >= PATIENCE:
                break
        return best[1:]

    def _trained(self, x: Tensor, labels: Labels, seed: int, rounds: int) -> Iterator[Net]:
        """Yield the network after every round of training."""
        objective, alone = self._objective(labels), LocalOnly()
        net = make_net(self.model, tuple(x.shape[1:]), labels.classes, seed_of(seed, 0, 0, "alone"))
        rows, stats = objective.init_rows(labels), objective.site_stats(labels)
        for round in range(rounds):
            batches = plan(alone, objective, self.local, len(x), generator(seed, round, 0, "alone"))
            with seeded(seed, round, 0, "alone layers"):
                data = SiteData(x, labels, rows, stats)
                _, _, rows = train_locally(alone, objective, net, data, batches, {}, {}, self.local)
            yield net

    def _objective(self, labels: Labels) -> Objective:
        return objectives()[self.objective or losses_for(type(labels))[0]]()


def losses_for(kind: type[Labels]) -> list[str]:
    """Return the objectives that `auto` tries with these labels, or any that learns from them; the plainest last."""
    able = {name: known for name, known in objectives().items() if known.accepts(kind)}
    tried = [name for name, known in able.items() if known.auto is not None] or [*able]
    return sorted(tried, key=lambda name: able[name].reference)


def _told_apart(labels: Labels) -> tuple[Tensor, tuple[ModelPart, ...]]:
    """Return the classes that a network can learn from these labels, and parts for those about which it cannot."""
    if not labels.several:
        return labels.weighted_examples()[1].unique(), ()
    marks, seen, rest = labels.marks(), [], []
    for c, column in enumerate(marks.unbind(1)):
        y = column[column >= 0]
        if len(y) and y.min() < y.max():
            seen.append(c)
        else:
            rest.append(ModelPart(Always.share_of(y), torch.tensor([c]), present=True))
    return torch.tensor(seen, dtype=torch.int64), tuple(rest)
