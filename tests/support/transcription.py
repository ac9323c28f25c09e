"""Three examples with candidate sets, whose numbers many tests share, and small stand-ins for a network at work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from imperfed.algorithms.fedavg import FedAvg
from imperfed.core.batch import Batch, Tree
from imperfed.core.labels import Candidates, Labels
from imperfed.core.network import Layout, Net, Network
from imperfed.core.objective import Objective
from imperfed.engine.local_training import Local, Plan, SiteData, train_locally

Z = torch.tensor([[1.0, 2.0, 0.5, -1.0], [0.2, -0.3, 1.5, 0.7], [-0.5, 0.0, 0.3, 2.0]], dtype=torch.float64)
Y = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 1], [1, 0, 0, 1]], dtype=torch.bool)
S = Candidates(Y, 4)
UNIFORM = Y.double() / Y.sum(1, keepdim=True)
W = torch.tensor(
    [[0.268941, 0.731059, 0, 0], [0, 0.102376, 0.619338, 0.278286], [0.075858, 0, 0, 0.924142]], dtype=torch.float64
)
"""The softmax of Z inside each candidate set."""

ALL_SETS = torch.tensor([s for s in product((False, True), repeat=4) if any(s)])
EXTREMES = ([1e4, -1e4, 0, 3], [-1e4, -1e4, -1e4, 1e4], [0, 0, 0, 0], [1e4] * 4, [1e9, -1e9, 5, 0], [-1e4, 1e4, 1e4, 0])


def near(actual: Tensor, expected: Any, tolerance: float = 1e-6) -> None:
    """Equal to the digits that the expected numbers are given with."""
    torch.testing.assert_close(
        actual.detach(), torch.as_tensor(expected, dtype=torch.float64), rtol=0, atol=tolerance, check_dtype=False
    )


def batch(labels: Labels = S, rows: Tree | None = None, x: Tensor | None = None, **more: Any) -> Batch:
    """A batch of all real rows."""
    n = len(labels)
    x = torch.zeros(n, 1) if x is None else x
    real, draws, site_stats = more.get("real", torch.ones(n)), more.get("draws", {}), more.get("site_stats", {})
    return Batch.of(x, labels, real, rows or {}, draws, site_stats)


class Answers:
    """A network that gives these logits in turn, one for each time it is asked."""

    def __init__(self, *logits: Tensor) -> None:
        self.left = list(logits)

    def __call__(self, x: Tensor) -> Tensor:
        return self.left.pop(0)


def silent(x: Tensor) -> Tensor:
    """A network that must not be asked."""
    raise AssertionError("a second forward pass was made")


def losses(objective: Objective, rows: Tree | None = None, z: Tensor = Z, labels: Labels = S) -> Tensor:
    """The loss of every example at these logits."""
    return objective.loss(Answers(z), batch(labels, rows, site_stats=objective.site_stats(labels)))[0]


def gradient(objective: Objective, rows: Tree | None = None, z: Tensor = Z, labels: Labels = S) -> Tensor:
    """The gradient of the mean loss with respect to the logits."""
    z = z.clone().requires_grad_()
    (g,) = torch.autograd.grad(losses(objective, rows, z, labels).mean(), z)
    return g


def assert_static(objective: Objective, labels: Labels) -> None:
    """A step runs on tensors without values: it needs no number on the host, and no shape depends on one."""
    far = type(labels)(labels.values.to("meta"), labels.classes)
    b = batch(
        far, objective.init_rows(far), torch.zeros(len(far), 1, device="meta"), site_stats=objective.site_stats(far)
    )
    z = torch.zeros(len(far), labels.classes, device="meta", requires_grad=True)
    loss, out = objective.loss(Answers(z), b)
    assert loss.shape == (len(far),)
    torch.autograd.grad(loss.sum(), z)
    with torch.no_grad():
        objective.update_rows(Answers(z), b, out)


def assert_stable(objective: Objective) -> None:
    """No set of candidates and no extreme logits, on a first or a later visit, make anything infinite or NaN."""
    labels = Candidates(ALL_SETS, 4)
    assert_static(objective, labels)
    for logits, later in product(EXTREMES, EXTREMES):
        rows = objective.init_rows(labels)
        for values in (logits, later):
            z = torch.tensor(values, dtype=torch.float32).expand(len(labels), 4).clone().requires_grad_()
            loss, out = objective.loss(Answers(z), batch(labels, rows))
            (g,) = torch.autograd.grad(loss.sum(), z)
            with torch.no_grad():
                rows = objective.update_rows(Answers(z), batch(labels, rows), out)
            for t in (loss, g, *rows.values()):
                assert torch.isfinite(t).all(), (values, t)
        assert_belief(objective.infer_labels(z.detach(), labels, rows), ALL_SETS)


def assert_belief(belief: Tensor | None, sets: Tensor) -> None:
    """A probability for every candidate and none for the others."""
    assert belief is not None
    assert (belief >= 0).all()
    assert (belief[~sets] == 0).all()
    torch.testing.assert_close(belief.sum(1), torch.ones(len(sets), dtype=belief.dtype))


def tiny_net(algorithm: Any, seed: int = 0, inputs: int = 3, hidden: int = 5) -> Net:
    """A smooth network of two layers and four classes."""
    torch.manual_seed(seed)
    network = algorithm.build(
        Network(nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh()), nn.Linear(hidden, 4)),
    )
    return Net(network, Layout.of(network, algorithm.is_personal))


def one_step(objective: Objective) -> tuple[Tensor, Tensor, Tree]:
    """Logits before and after one local step on the three examples, and what was remembered of them."""
    net = tiny_net(FedAvg())
    x = torch.tensor([[1.0, 0.5, -1.0], [0.3, -0.8, 0.2], [-1.0, 0.4, 0.9]])
    before = net(x).detach().clone()
    data = SiteData(x, S, objective.init_rows(S))
    plan = Plan(torch.tensor([[0, 1, 2]]), {})
    _, _, rows = train_locally(FedAvg(), objective, net, data, plan, {}, {}, Local(steps=1, batch=3, lr=1.0))
    return before, net(x).detach(), rows


@contextmanager
def double() -> Iterator[None]:
    """Networks are made in float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
