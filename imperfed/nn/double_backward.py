"""Convolutions that can be differentiated twice, built from the operations of an ordinary training step.

In a captured graph, torch's own second derivative of a convolution keeps the sites' streams from running in parallel:
with LeNet-5 a round of LAAR took twice as long. Here it is built from the convolution itself and the gradients of its
input and its kernel, with their arguments exchanged.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

conv, conv_backward = torch.ops.aten.convolution, torch.ops.aten.convolution_backward
CONVOLUTIONS = (torch.conv1d, torch.conv2d, torch.conv3d)
Geometry = tuple[Any, ...]
"""Stride, padding, dilation and so on, in the form that torch's operations take."""


class DoubleBackward(TorchFunctionMode):
    """A context in which convolutions on a GPU use the second derivative of this module; all else is torch's own."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        in_words = any(isinstance(a, str) for a in (*args, *kwargs.values()))  # padding="same" is left to torch
        if func in CONVOLUTIONS and not in_words and pays(*args, **kwargs):
            return convolution(*args, **kwargs)
        return func(*args, **kwargs)


def pays(input: Tensor, weight: Tensor, *others: Any, **named: Any) -> bool:
    """Return whether it pays: on a CPU torch's own way is as fast, and autocast picks types operation by operation."""
    return input.is_cuda and input.ndim == weight.ndim and not torch.is_autocast_enabled("cuda")


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Return what torch.conv1d, conv2d or conv3d returns for a batch."""
    axes = weight.ndim - 2
    sizes = ([size] * axes if isinstance(size, int) else list(size) for size in (stride, padding, dilation))
    y: Tensor = Convolution.apply(input, weight, bias, (*sizes, False, [0] * axes, groups))  # type: ignore[no-untyped-call]
    return y


class Convolution(Function):
    """y = x * w + b."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor | None, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.geometry = geometry
        y: Tensor = conv(x, w, b, *geometry)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, w = ctx.saved_tensors
        return (*Gradient.apply(*grads, x, w, ctx.geometry, ctx.needs_input_grad[:3]), None)  # type: ignore[no-untyped-call]


class Gradient(Function):
    """g_x = g * w, g_w = g * x and g_b = sum g, where g is the gradient of y; linear in g, and in w or x."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, w: Tensor, geometry: Geometry, wanted: tuple[bool, ...]) -> Any:
        ctx.save_for_backward(g, x, w)
        ctx.geometry = geometry
        ctx.set_materialize_grads(False)
        return conv_backward(g, x, w, [len(w)], *geometry, wanted)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, h_x: Tensor | None, h_w: Tensor | None, h_b: Tensor | None) -> Any:
        """Apply the product rule to g_x and g_w; h_x, h_w and h_b are the gradients of g_x, g_w and g_b."""
        (g, x, w), geometry = ctx.saved_tensors, ctx.geometry
        _, of_x, of_w, *_ = ctx.needs_input_grad
        parts, to_x, to_w = [], None, None
        if h_x is not None:
            parts.append(conv(h_x, w, None, *geometry))
            to_w = conv_backward(g, h_x, w, None, *geometry, (False, True, False))[1] if of_w else None
        if h_w is not None:
            parts.append(conv(x, h_w, None, *geometry))
            to_x = conv_backward(g, x, h_w, None, *geometry, (True, False, False))[0] if of_x else None
        if h_b is not None:
            parts.append(h_b.view(-1, *[1] * (g.ndim - 2)).expand_as(g))
        return reduce(torch.add, parts) if parts else None, to_x, to_w, None, None
