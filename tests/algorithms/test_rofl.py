"""RoFL: centroids, the rows that are kept and the loss, in numbers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity, cross_entropy

from imperfed.algorithms.rofl import RoFL, gated, merged_centroids
from imperfed.core.batch import Batch
from imperfed.core.exchange import Updates
from imperfed.core.labels import Exact
from imperfed.engine.local_training import Local
from imperfed.testing.toy import engine, network, world


def test_centroids_move_as_far_as_they_agree() -> None:
    f, h = torch.tensor([[1.0, 2.0], [5.0, 5.0]]), torch.tensor([[3.0, 1.0], [1.0, 1.0], [9.0, 0.0]])
    new = gated(f, h, torch.tensor([0, 0, 1]), torch.tensor([1.0, 1.0, 0.0]))  # the mean of class 0 is (2, 1)
    assert new[0].tolist() == pytest.approx([1.64, 1.36], abs=1e-6)
    assert new[1].tolist() == [5.0, 5.0]  # no row of class 1 was kept


def test_the_server_weighs_centroids_by_similarity() -> None:
    f_G, f = torch.tensor([[1.0, 0.0]]), torch.tensor([[[1.0, 1.0]], [[1.0, 0.5]]])
    assert merged_centroids(f_G, f)[0].tolist() == pytest.approx([1.0, 0.720759], abs=1e-6)
    assert merged_centroids(f_G, -f)[0].tolist() == pytest.approx([-1.0, -0.75], abs=1e-6)  # all opposed: the mean
    one = torch.cat([f[:1], -f[1:]])
    assert merged_centroids(f_G, one)[0].tolist() == pytest.approx([1.0, 1.0], abs=1e-6)


def test_how_much_is_forgotten() -> None:
    r = [RoFL().forget(torch.tensor(float(t))).item() for t in range(10)]
    assert r == pytest.approx(np.linspace(0, 0.2, 10).tolist(), abs=1e-7)
    assert RoFL().forget(torch.tensor(500.0)).item() == pytest.approx(0.2)


def test_rows_of_small_loss_are_kept() -> None:
    loss, real = torch.tensor([0.5, 0.1, 0.9, 0.3, 0.2, 0.0]), torch.tensor([1.0, 1, 1, 1, 1, 0])
    batch = Batch.of(loss, None, real, {}, {})
    late = torch.tensor(100.0)
    assert RoFL().keep(loss, batch, late).tolist() == [1, 1, 0, 1, 1, 0]  # four of five real rows
    assert RoFL(forget_rate=0.4).keep(loss, batch, late).tolist() == [0, 1, 0, 1, 1, 0]
    assert RoFL().keep(loss, batch, torch.tensor(0.0)).tolist() == [1, 1, 1, 1, 1, 0]
    one = Batch.of(loss, None, torch.tensor([1.0, 0, 0, 0, 0, 0]), {}, {})
    assert RoFL().keep(loss, one, late).tolist() == [1, 0, 0, 0, 0, 0]  # never none


def test_before_round_0_centroids_are_the_class_means_of_all_sites() -> None:
    method = RoFL()
    data = world(Exact)
    e = engine(method, method.objective, data, rounds=1)
    h = network()(data[0].x, features=True)
    means = torch.stack([h[data[0].labels.values == c].mean(0) for c in range(4)])
    torch.testing.assert_close(e.state.server["f"], means.detach(), rtol=1e-5, atol=1e-6)
    e.close()


def test_class_means_count_every_row_of_every_slice_and_site() -> None:
    method, features = RoFL(), SimpleNamespace(features=lambda x: x)
    slices = [
        SimpleNamespace(x=torch.tensor([[1.0, 2.0], [3.0, 6.0]]), labels=Exact(torch.tensor([0, 0]), 3)),
        SimpleNamespace(x=torch.tensor([[5.0, 1.0]]), labels=Exact(torch.tensor([1]), 3)),
    ]
    told = method.class_sums(SimpleNamespace(net=features, slices=lambda: slices))  # type: ignore[arg-type]
    assert told["sums"].tolist() == [[4, 8], [5, 1], [0, 0]]
    assert told["counts"].tolist() == [2, 1, 0]
    other = {"sums": torch.tensor([[2.0, 1], [0, 0], [0, 0]]), "counts": torch.tensor([1.0, 0, 0])}
    new = method.collect({"t": torch.zeros(())}, Updates((0, 1), torch.ones(2), {}, (told, other)), None)  # type: ignore[arg-type]
    assert new["f"].tolist() == [[2, 3], [5, 1], [0, 0]]  # a class that nobody has keeps 0


def test_the_server_takes_the_plain_mean_of_models() -> None:
    w, f_G = torch.tensor([[1.0], [4.0]]), torch.tensor([[1.0, 0.0]])
    trees = {"w": w, "buffers": 2 * w, "f": torch.tensor([[[1.0, 1.0]], [[1.0, 0.5]]])}
    server = {"w": torch.zeros(1), "buffers": torch.zeros(1), "f": f_G, "t": torch.tensor(3.0)}
    new = RoFL().merge(server, Updates((0, 1), torch.tensor([10.0, 30.0]), trees), None)  # type: ignore[arg-type]
    assert new["w"].item() == 2.5
    assert new["buffers"].item() == 5
    assert new["f"].tolist()[0] == pytest.approx([1.0, 0.720759], abs=1e-6)
    assert new["t"] == 4


@pytest.mark.parametrize("t", [30.0, 120.0])
def test_the_loss_of_a_step(t: float) -> None:
    """Centroids that confirm some labels and not others, before and after pseudo-labels set in."""
    method = RoFL()
    e = engine(method, method.objective, world(Exact, (10,)), Local(steps=1, batch=16), rounds=1)
    spec, site = e.population.spec, e.population.site(0)
    down = e.population.down(0, method.exchanges(0)[0]) | {"t": torch.tensor(t)}
    net = e.population.runtime.load(site, down["w"], down["buffers"])
    received = net(site.data.x).detach()
    net.w.add_(0.5 * torch.randn(net.w.shape, generator=torch.Generator().manual_seed(0)))  # later in the round
    batch = Batch.of(site.data.x, site.data.labels, torch.ones(10), {}, {})
    f = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    step = spec.local.step(net, batch, down, {}, {"f": f.clone()}, 0.1)
    h, z, y = net.features(batch.x), net(batch.x), batch.labels.values
    kept = cross_entropy(z, y, reduction="none").argsort()[:8]
    total = torch.zeros(())
    masks = []
    for i in kept.tolist():
        mask = int(cosine_similarity(f, h[i].unsqueeze(0)).argmax()) == y[i]
        masks.append(bool(mask))
        label = y[i] if mask or t < 100 else received[i].argmax()
        p = z[i].softmax(-1)
        total = total - p[label].log() - 0.8 * (p * p.log()).sum()
        total = total + min(1.0, t / 100) * mask * (h[i] - f[y[i]]).square().sum()
    assert 0 < sum(masks) < 8
    torch.testing.assert_close(method.step_loss(method.objective, step)[0], total / 8)
    keep = torch.zeros(10).index_fill(0, kept, 1.0)
    torch.testing.assert_close(step.opt_state["f"], gated(f, h.detach(), y, keep))
    e.close()
