"""Layers that know which local step they are in, against torch's own and against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from imperfed.core.network import Layout, Net, Network
from imperfed.core.step_layers import StepLayer, drawn, step_keys, step_layers

X = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
KEY = step_keys(5, 1)[0]


def lowbias32(x: int, between: int) -> int:
    """Wellons' hash in whole numbers, with the second half of the key between its two factors."""
    mask = (1 << 32) - 1
    x ^= x >> 16
    x = x * 0x7FEB352D & mask ^ between
    x ^= x >> 15
    x = x * 0x846CA68B & mask
    return x ^ x >> 16


@pytest.mark.parametrize("salt", [0, 7, (1 << 31) + 5, -3])
def test_numbers_are_those_of_the_hash(salt: int) -> None:
    key = torch.tensor([2**31 - 2, -123456789], dtype=torch.int32)
    first, second = (int(k) % (1 << 32) for k in key)
    wanted = [lowbias32((i + first + salt) % (1 << 32), second) % (1 << 24) for i in range(6)]
    assert drawn(key, salt, (2, 3)).flatten().tolist() == wanted


def test_numbers_are_evenly_spread_and_unlike_those_of_other_steps() -> None:
    some = [drawn(key, salt, (1 << 16,)).float() / (1 << 24) for key in step_keys(3, 4) for salt in (0, 1 << 20)]
    rows = torch.stack(some)
    counts = torch.stack([row.histc(16, 0, 1) for row in rows])
    chi = ((counts - 4096).square() / 4096).sum(1)  # 15 degrees of freedom: above 44 once in 10,000
    assert chi.max() < 44
    lagged = torch.cat([rows, rows.roll(1, 1), rows.roll(64, 1)])
    correlation = torch.corrcoef(lagged).fill_diagonal_(0)
    assert correlation.abs().max() < 5 / 256  # five standard errors


def test_keys_follow_from_the_seed_alone() -> None:
    assert torch.equal(step_keys(3, 5)[:2], step_keys(3, 2))
    assert len({tuple(key) for seed in range(3) for key in step_keys(seed, 50).tolist()}) == 150


def net_of(*layers: nn.Module) -> Net:
    network = Network(nn.Sequential(*layers), nn.Linear(2, 2))
    return Net(network, Layout.of(network, lambda name: False))


def test_a_mask_follows_from_key_layer_and_pass_alone() -> None:
    net = net_of(nn.Dropout(0.5), nn.Dropout(0.5))
    first, second = net.step_layers
    net.train(True)
    net.begin_step(KEY)
    one, two, other = first(X), first(X), second(X)
    assert not torch.equal(one, two)
    assert not torch.equal(one, other)
    net.draw_again()
    assert torch.equal(first(X), one)
    assert torch.equal(second(X), other)
    net.begin_step(step_keys(5, 2)[1])
    assert not torch.equal(first(X), one)
    net.begin_step(KEY)
    assert torch.equal(first(torch.cat([X, X]))[:7], one)  # rows that pad a batch change nothing
    net.begin_step(None)
    torch.manual_seed(0)
    free = first(X)
    torch.manual_seed(0)
    assert torch.equal(nn.Dropout(0.5)(X), free)
    net.train(False)
    net.begin_step(KEY)
    assert torch.equal(first(X), X)


@pytest.mark.parametrize(
    ("layer", "shape", "free"),
    [
        (nn.Dropout(0.3), (64, 40), 64 * 40),
        (nn.Dropout1d(0.3), (64, 40, 3), 64 * 40),
        (nn.Dropout2d(0.3), (64, 40, 3, 2), 64 * 40),
        (nn.Dropout3d(0.3), (64, 40, 3, 2, 2), 64 * 40),
    ],
    ids=repr,
)
def test_so_many_numbers_are_dropped_and_the_mean_stays(layer: nn.Module, shape: tuple[int, ...], free: int) -> None:
    (planned,) = step_layers(nn.Sequential(layer))
    planned.enter(KEY, None)
    out = planned(torch.ones(shape))
    planned.enter(KEY, None)
    assert torch.equal(planned(torch.ones(shape)), out)  # drawn from the key, and from no generator
    assert set(out.unique().tolist()) == {0.0, torch.tensor(1 / 0.7).item()}
    channels = out.flatten(2) if out.ndim > 2 else out[:, :, None]
    assert torch.equal(channels, channels[:, :, :1].expand_as(channels))
    assert abs(float((out == 0).float().mean()) - 0.3) < 4 * (0.3 * 0.7 / free) ** 0.5


@pytest.mark.parametrize(("p", "wanted"), [(0.0, 1.0), (1.0, 0.0)])
def test_all_or_nothing_is_dropped(p: float, wanted: float) -> None:
    (layer,) = step_layers(nn.Sequential(nn.Dropout(p)))
    layer.enter(KEY, None)
    assert torch.equal(layer(X), wanted * X)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.BatchNorm1d(6), (6,)),
        (nn.BatchNorm1d(3, momentum=0.4), (3, 2)),
        (nn.BatchNorm2d(2, affine=False), (2, 3, 1)),
        (nn.BatchNorm3d(1, track_running_stats=False), (1, 3, 2, 1)),
    ],
    ids=repr,
)
def test_statistics_are_those_of_the_real_rows(layer: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    for p in layer.parameters():
        nn.init.normal_(p)
    own = nn.Sequential(layer)
    torchs = type(layer)(layer.num_features, 1e-5, layer.momentum, layer.affine, layer.track_running_stats)
    torchs.load_state_dict(layer.state_dict())
    (masked,) = step_layers(own)
    real = torch.tensor([1.0, 1, 0, 1, 0, 1, 1])
    kept = real > 0
    masked.enter(KEY, real)

    def ends(norm: nn.Module, x: Tensor, rows: Tensor) -> list[Tensor]:
        x = x.clone().requires_grad_()
        out = norm(x)[rows]
        (g,) = torch.autograd.grad((out * torch.linspace(-1, 2, out.numel()).view_as(out)).sum(), x)
        return [out, g[rows], *[b for n, b in norm.named_buffers() if "num" not in n]]

    for training in (True, False):
        for norm in (masked, torchs):
            norm.train(training)
        wanted = ends(torchs, X[kept].view(-1, *shape), torch.ones(5, dtype=torch.bool))
        torch.testing.assert_close(ends(masked, X.view(-1, *shape), kept), wanted)


def test_layers_that_compute_something_else_stay_as_they_are() -> None:
    class Own(nn.Dropout):
        pass

    network = nn.Sequential(Own(0.5), nn.AlphaDropout(0.5), nn.LayerNorm(3), nn.Dropout(0.5))
    assert len(step_layers(network)) == 1
    assert [isinstance(m, StepLayer) for m in network] == [False] * 3 + [True]
