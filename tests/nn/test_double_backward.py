"""The second derivative of a convolution, made of ordinary ones: the same numbers as torch's own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import conv2d, cross_entropy

from imperfed.models import ModelSpec, build
from imperfed.nn import double_backward as twice
from imperfed.nn.double_backward import DoubleBackward, convolution

torch.set_num_threads(1)


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_()


GEOMETRIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "stride": {"stride": (2, 1)},
    "padding": {"padding": 2},
    "dilation": {"dilation": (1, 2), "padding": (0, 1)},
    "groups": {"groups": 2, "padding": 1},
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("how", GEOMETRIES.values(), ids=GEOMETRIES)
def test_first_and_second_derivatives_are_those_of_differences(how: dict[str, Any], bias: bool) -> None:
    x, w, b = drawn(2, 4, 4, 5), drawn(2, 4 // how.get("groups", 1), 3, 2), drawn(2) if bias else None
    assert torch.equal(convolution(x, w, b, **how), conv2d(x, w, b, **how))

    def work(x: Tensor, w: Tensor, *b: Tensor) -> Tensor:
        return convolution(x, w, *b, **how)

    given = (x, w) if b is None else (x, w, b)
    assert gradcheck(work, given)
    assert gradgradcheck(work, given)


@pytest.mark.parametrize("axes", [1, 3])
def test_other_numbers_of_axes(axes: int) -> None:
    x, w, b = drawn(2, 2, *[3] * axes), drawn(3, 2, *[2] * axes), drawn(3)
    assert gradgradcheck(lambda *given: convolution(*given, padding=1), (x, w, b))


def test_data_that_have_no_gradient_cost_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first layer's: only the kernel's second derivative is computed."""
    asked: list[Any] = []

    def spy(*args: Any) -> Any:
        asked.append(args[-1])
        return torch.ops.aten.convolution_backward(*args)

    monkeypatch.setattr(twice, "conv_backward", spy)
    x, w = drawn(2, 1, 5, 5).detach(), drawn(2, 1, 3, 3)
    (g,) = torch.autograd.grad(convolution(x, w).square().sum(), w, create_graph=True)
    torch.autograd.grad(g.square().sum(), w)
    assert asked == [(False, True, False), (False, True, False)]  # never of x, and nothing else beside


def second(net: nn.Module, around: AbstractContextManager[Any]) -> tuple[list[Tensor], list[Tensor]]:
    """The gradient of a loss, and that of its direction: what LAAR and FedPSL ask for."""
    weights = list(net.parameters())
    with around:
        loss = cross_entropy(net(drawn(6, 1, 16, 16).float().detach()), torch.arange(6) % 3)
    grads = torch.autograd.grad(loss, weights, create_graph=True)
    direction = grads[0].flatten()[0] / torch.stack([g.square().sum() for g in grads]).sum().sqrt()
    return list(grads), list(torch.autograd.grad(direction + loss, weights, materialize_grads=True))


@pytest.mark.parametrize("spec", [ModelSpec("lenet5"), ModelSpec("cnn"), ModelSpec("cnn", norm="batch")], ids=str)
def test_a_network_has_the_same_derivatives(spec: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    net, used = build(spec, (1, 16, 16), 3, 0), 0
    taken: Callable[..., Tensor] = twice.convolution

    def counted(*args: Any, **kwargs: Any) -> Tensor:
        nonlocal used
        used += 1
        return taken(*args, **kwargs)

    monkeypatch.setattr(twice, "pays", lambda *args, **named: True)
    monkeypatch.setattr(twice, "convolution", counted)
    for ours, torchs in zip(second(net, DoubleBackward()), second(net, nullcontext()), strict=True):
        torch.testing.assert_close(ours, torchs, rtol=1e-4, atol=1e-6)
    assert used == sum(isinstance(m, nn.Conv2d) for m in net.modules())


def test_on_a_cpu_and_where_the_padding_has_a_name_torch_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any, **kwargs: Any) -> Tensor:
        raise AssertionError

    monkeypatch.setattr(twice, "convolution", never)
    x, w = drawn(1, 1, 4, 4), drawn(1, 1, 3, 3)
    with DoubleBackward():
        conv2d(x, w)
    monkeypatch.setattr(twice, "pays", lambda *args, **named: True)
    with DoubleBackward():
        conv2d(x, w, padding="same")
        conv2d(x, w, None, 1, "valid")
        with pytest.raises(AssertionError):
            conv2d(input=x, weight=w)
