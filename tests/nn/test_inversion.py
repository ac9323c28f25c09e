"""Dummy rows whose gradient points where an update points."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from imperfed.core.network import Layout, Net, Network
from imperfed.nn.inversion import Dummies, Ensemble, cosine, invert, total_variation
from tests.support.transcription import double, near


def a_net(*between: nn.Module, inputs: int = 4, classes: int = 3, stays=lambda name: False) -> Net:
    torch.manual_seed(3)
    rep = nn.Sequential(nn.Linear(inputs, 6), *between, nn.ReLU())
    network = Network(rep, nn.Linear(6, classes)).eval()
    return Net(network, Layout.of(network, stays))


def rows(net: Net, K: int) -> tuple[Tensor, Tensor, Tensor]:
    """K models near the network's own, the buffers of each, and a direction for each."""
    torch.manual_seed(5)
    S, B = net.layout.shared, net.layout.shared_end - net.layout.trainable
    w = net.w[:S] + 0.3 * torch.randn(K, S)
    return w, net.layout.buffers(net.row).expand(K, B), torch.randn(K, S)


def start(net: Net, rows: int = 12) -> Dummies:
    inputs, classes = net.module.rep[0].in_features, net.module.head.out_features
    return Dummies.start(rows, torch.Size([inputs]), classes, torch.Generator().manual_seed(0))


def test_total_variation():
    image = torch.tensor([[0.0, 1, 3], [2, 2, 0], [1, 0, 1]])
    assert total_variation(image.view(1, 1, 1, 3, 3)).tolist() == pytest.approx([2.833333], abs=1e-6)
    two_sites = torch.stack([image, 2 * image])
    assert total_variation(two_sites).tolist() == pytest.approx([1.166667, 2.333333], abs=1e-6)
    assert total_variation(torch.ones(2, 5, 1)).tolist() == [0, 0]


def test_one_cosine_over_all_tensors():
    a, b = (
        [torch.tensor([[1.0, 0, 2]]), torch.tensor([[[1.0, -1]]])],
        [torch.tensor([[2.0, 1, 1]]), torch.tensor([[[0.0, -2]]])],
    )
    assert 1 - cosine(a, b).item() == pytest.approx(0.282863, abs=1e-6)
    assert cosine([torch.zeros(2, 3)], [torch.zeros(2, 3)]).tolist() == [0, 0]


@double()
def test_the_gradient_of_one_linear_layer():
    network = Network(nn.Identity(), nn.Linear(3, 2))
    net = Net(network, Layout.of(network, lambda name: False))
    w = torch.tensor([[0.2, -0.1, 0.4, 0.0, 0.3, -0.2, 0.1, -0.1]])
    x = torch.tensor([0.5, -1.0, 2.0])
    gW, gb = Ensemble(net, w, w[:, :0]).gradients(x.view(1, 1, 3), torch.tensor([[[0.0, 1.0]]]))
    near(gb, [[0.869892, -0.869892]])
    near(gW[0, 0] / gb[0, 0], x)


@double()
def test_an_ensemble_is_the_network_at_every_row():
    net = a_net(nn.BatchNorm1d(6))
    w, buffers, _ = rows(net, 3)
    buffers = buffers + torch.rand_like(buffers)
    x, y = torch.randn(3, 7, 4), torch.randn(3, 7, 3).softmax(-1)
    ensemble = Ensemble(net, w, buffers)
    grads = ensemble.gradients(x, y)
    for k in range(3):
        near(ensemble(x)[k], net.at(w[k], buffers[k], x[k]).detach(), tolerance=1e-12)
        w_k = w[k].clone().requires_grad_()
        (g,) = torch.autograd.grad(cross_entropy(net.at(w_k, buffers[k], x[k]), y[k]), w_k)
        near(torch.cat([g_k[k].flatten() for g_k in grads]), g, tolerance=1e-12)


def test_what_stays_at_the_sites_is_taken_from_the_net_and_not_matched():
    net = a_net(stays=lambda name: name.startswith("head."))
    w, buffers, v = rows(net, 2)
    ensemble = Ensemble(net, w, buffers)
    assert ensemble.shared == ["rep.0.weight", "rep.0.bias"]
    assert torch.equal(ensemble.tree["head.bias"], net.module.head.bias.expand(2, -1))
    assert invert(net, w, buffers, v, start(net), 3, 0.1, 1e-4).cosine.isfinite().all()


def loss_in_numpy(w: np.ndarray, v: np.ndarray, x: np.ndarray, z: np.ndarray, mu: float) -> float:
    """Eq. 5.2 of a linear softmax model without bias: its gradient is the mean of (p - y) x^T."""
    p, y = (np.exp(s) / np.exp(s).sum(1, keepdims=True) for s in (x @ w.T, z))
    g = (p - y).T @ x / len(x)
    match = (g * v).sum() / np.sqrt((g**2).sum() * (v**2).sum())
    return float(1 - match + mu * np.abs(np.diff(x, axis=1)).mean())


def slope(f, at: np.ndarray) -> np.ndarray:
    g = np.zeros_like(at)
    for i in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[i] = 1e-6
        g[i] = (f(at + step) - f(at - step)) / 2e-6
    return g


def invert_in_numpy(w: np.ndarray, v: np.ndarray, x: np.ndarray, z: np.ndarray, steps: int, lr: float, mu: float):
    """Adam with its usual moments, by finite differences."""
    m, s = [np.zeros_like(x), np.zeros_like(z)], [np.zeros_like(x), np.zeros_like(z)]
    for t in range(1, steps + 1):
        g = [
            slope(lambda a, z=z: loss_in_numpy(w, v, a, z, mu), x),
            slope(lambda a, x=x: loss_in_numpy(w, v, x, a, mu), z),
        ]
        m = [0.9 * m_ + 0.1 * g_ for m_, g_ in zip(m, g, strict=True)]
        s = [0.999 * s_ + 0.001 * g_**2 for s_, g_ in zip(s, g, strict=True)]
        move = [lr * m_ / (1 - 0.9**t) / (np.sqrt(s_ / (1 - 0.999**t)) + 1e-8) for m_, s_ in zip(m, s, strict=True)]
        x, z = x - move[0], z - move[1]
    return x, z


@double()
def test_three_sites_as_transcribed():
    network = Network(nn.Identity(), nn.Linear(4, 3, bias=False))
    net = Net(network, Layout.of(network, lambda name: False))
    torch.manual_seed(1)
    w, v, mu = torch.randn(3, 12), torch.randn(3, 12), 0.3
    begin = Dummies.start(5, torch.Size([4]), 3, torch.Generator().manual_seed(2))
    made = invert(net, w, w[:, :0], v, begin, 4, 0.1, mu)
    for k in range(3):
        w_k, v_k = (t[k].view(3, 4).numpy() for t in (w, v))
        x, z = invert_in_numpy(w_k, v_k, begin.x.numpy(), begin.z.numpy(), 4, 0.1, mu)
        near(made.x[k], x, tolerance=1e-5)
        near(made.y[k], np.exp(z) / np.exp(z).sum(1, keepdims=True), tolerance=1e-5)
        assert made.cosine[k].item() == pytest.approx(1 - loss_in_numpy(w_k, v_k, x, z, 0.0), abs=1e-5)


@double()
def test_together_is_one_by_one_and_in_any_order():
    net = a_net()
    w, buffers, v = rows(net, 4)
    begin = start(net)
    together = invert(net, w, buffers, v, begin, 6, 0.1, 1e-4)
    for k in range(4):
        alone = invert(net, w[k : k + 1], buffers[k : k + 1], v[k : k + 1], begin, 6, 0.1, 1e-4)
        near(together.x[k], alone.x[0], tolerance=1e-9)
        near(together.y[k], alone.y[0], tolerance=1e-9)
    order = torch.tensor([2, 0, 3, 1])
    near(invert(net, w[order], buffers, v[order], begin, 6, 0.1, 1e-4).x, together.x[order], tolerance=1e-9)


def test_inputs_are_left_alone_and_the_scale_of_an_update_is_not_looked_at():
    net = a_net()
    w, buffers, v = rows(net, 2)
    begin = start(net)
    before = [t.clone() for t in (net.row, w, v, begin.x, begin.z)]
    made = invert(net, w, buffers, v, begin, 5, 0.1, 1e-4)
    assert all(torch.equal(a, b) for a, b in zip(before, (net.row, w, v, begin.x, begin.z), strict=True))
    torch.testing.assert_close(made.y, invert(net, w, buffers, 8 * v, begin, 5, 0.1, 1e-4).y)


def test_twenty_steps_come_near_the_gradient_of_real_rows():
    net = a_net()
    x, y = torch.randn(2, 40, 4), torch.eye(3)[torch.tensor([0, 2])].unsqueeze(1).expand(2, 40, 3)
    w = net.w.expand(2, -1)
    real = torch.cat([g.flatten(1) for g in Ensemble(net, w, w[:, :0]).gradients(x, y)], 1).detach()
    begin = start(net, 60)
    before = invert(net, w, w[:, :0], real, begin, 0, 0.1, 1e-4)
    made = invert(net, w, w[:, :0], real, begin, 20, 0.1, 1e-4)
    assert (made.cosine > 0.9).all()
    assert (made.cosine > before.cosine).all()
    assert made.y.mean(1).argmax(1).tolist() == [0, 2]  # the one class that each site has


@double()
def test_the_gradient_where_rows_may_have_several_classes():
    net = a_net()
    x, y = torch.randn(1, 5, 4), torch.rand(1, 5, 3)
    found = Ensemble(net, net.w[None], net.row[None, :0]).gradients(x, y, several=True)
    loss = binary_cross_entropy_with_logits(net(x[0]), y[0], reduction="sum") / 5
    near(
        torch.cat([g.flatten() for g in found]),
        torch.cat([g.flatten() for g in torch.autograd.grad(loss, net.parameters)]),
    )


def test_known_labels_stay_as_they_are():
    net = a_net()
    w, buffers, v = rows(net, 2)
    begin = start(net)
    made = invert(net, w, buffers, v, begin, 5, 0.1, 1e-4, labels_known=True)
    near(made.y, begin.z.softmax(-1).expand(2, -1, -1), tolerance=1e-6)
    assert (made.x != begin.x).any()
