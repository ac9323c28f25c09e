"""The works that are timed, and the raw loop for comparison: plain PyTorch, no framework, one thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

LR, MOMENTUM = 0.01, 0.9


def lenet5() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(108, 256), nn.ReLU(), nn.Linear(256, 16))


@dataclass(frozen=True)
class Work:
    """One round of federated averaging. A site has a whole number of batches, at least `steps`."""

    about: str
    net: Callable[[], nn.Module]
    model: str
    """The same network among imperfed's models."""
    shape: tuple[int, ...]
    classes: int
    sites: int
    on_duty: int
    rows: int
    batch: int
    steps: int

    def data(self) -> tuple[Tensor, Tensor]:
        """Return inputs and labels of all sites, one site after the other."""
        draw = torch.Generator().manual_seed(0)
        n = self.sites * self.rows
        return torch.randn(n, *self.shape, generator=draw), torch.randint(self.classes, (n,), generator=draw)


WORKS = {
    "W1": Work("LeNet-5, 4 sites, batch 256, 40 steps", lenet5, "lenet5", (1, 28, 28), 10, 4, 4, 15360, 256, 40),
    "W2": Work("MLP 108-256-16, 10 sites, batch 32, 40 steps", mlp, "mlp", (108,), 16, 10, 10, 1280, 32, 40),
    "W3": Work("LeNet-5, 10 of 100 sites, batch 32, 10 steps", lenet5, "lenet5", (1, 28, 28), 10, 100, 10, 640, 32, 10),
}


class RawLoop:
    """The raw loop: for each site, load the global weights and take local steps on prepared batches; then average."""

    def __init__(self, work: Work) -> None:
        self.work = work
        x, y = work.data()
        self.batches = [
            list(zip(a.split(work.batch)[: work.steps], b.split(work.batch)[: work.steps], strict=True))
            for a, b in zip(x.split(work.rows), y.split(work.rows), strict=True)
        ]
        self.net = work.net()
        self.weights = {name: t.clone() for name, t in self.net.state_dict().items()}

    def round(self, t: int) -> None:
        """Do one round; each round has other sites."""
        first = t * self.work.on_duty
        answers = [self.train(k % self.work.sites) for k in range(first, first + self.work.on_duty)]
        self.weights = {name: torch.stack([a[name] for a in answers]).mean(0) for name in self.weights}

    def train(self, site: int) -> dict[str, Tensor]:
        """Return the weights of one site after its local steps."""
        self.net.load_state_dict(self.weights)
        optimizer = torch.optim.SGD(self.net.parameters(), LR, MOMENTUM)
        for x, y in self.batches[site]:
            optimizer.zero_grad()
            cross_entropy(self.net(x), y).backward()
            optimizer.step()
        return {name: t.clone() for name, t in self.net.state_dict().items()}

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
