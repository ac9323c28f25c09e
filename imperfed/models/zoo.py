"""The networks that come with imperfed, each split into representation and head.

None of them computes in place, so that all can be differentiated twice. Normalisation layers are named `norm`, so that
an algorithm can keep them at a site by name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import pairwise
from math import prod
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, relu
from torch.nn.functional import linear as linear_map

from imperfed.core.network import Network

Shape = tuple[int, ...]
"""The shape of one input, without the batch dimension; images are (channels, height, width)."""

LENET_MIN = 12
"""The smallest image side for which LeNet-5's two convolutions and poolings leave at least one pixel."""

VGG_WIDTHS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
"""Channels of VGG-16's thirteen convolutions; each group is followed by a pooling."""

VGG_MIN = 2 ** len(VGG_WIDTHS)
"""The smallest image side for which five poolings leave at least one pixel."""

NORMS: dict[str, Callable[[int], nn.Module]] = {
    "group": lambda channels: nn.GroupNorm(32 if channels >= 64 else 8, channels),
    "batch": nn.BatchNorm2d,
}
"""Normalisation layers of convolutional networks; all numbers of channels here are multiples of the groups."""

CNN_WIDTHS = (16, 32, 64)
CNN_MIN = 8
"""The smallest image side for which the small network's stride and two poolings leave at least one pixel."""


def linear(shape: Shape, classes: int) -> Network:
    """Return one linear layer on the flattened input."""
    return mlp(shape, classes, hidden=0, layers=1)


class Rectified(nn.Sequential):
    """Linear layers, each with a ReLU, on the flattened input; layers are not called as modules, which saves time."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer in cast(Iterable[nn.Linear], self):
            x = relu(linear_map(x, layer.weight, layer.bias))
        return x


def mlp(shape: Shape, classes: int, hidden: int, layers: int) -> Network:
    """Return `layers` linear layers with ReLU between them, on the flattened input."""
    widths = [prod(shape)] + [hidden] * (layers - 1)
    rep = Rectified(*(nn.Linear(inputs, outputs) for inputs, outputs in pairwise(widths)))
    return Network(rep, nn.Linear(widths[-1], classes))


class SparseLinear(nn.Module):
    """A linear layer on sparse rows, which are never made dense: x[:, 0] holds feature indices, x[:, 1] their values.

    Indices below 2^24 are exact in float32. Padding slots of a row hold the index `features` and the value 0.
    """

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features + 1, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights as nn.Linear draws its own; l2-normalised inputs would not train from them."""
        bound = (len(self.weight) - 1) ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        at, values = x.unbind(1)
        pad = len(self.weight) - 1
        out = embedding_bag(at.long(), self.weight, mode="sum", per_sample_weights=values, padding_idx=pad)
        return out + self.bias


def text(classes: int, features: int, widths: tuple[int, ...]) -> Network:
    """Return a sparse layer and linear layers with ReLU between them; none follows the last."""
    layers: list[nn.Module] = [SparseLinear(features, widths[0])]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return Network(nn.Sequential(*layers[: max(1, len(layers) - 1)]), nn.Linear(widths[-1], classes))


class ChannelsLast(nn.Module):
    """A layer that, on a CPU, reorders memory so that small convolutions and poolings are fastest; values stay."""

    def forward(self, x: Tensor) -> Tensor:
        return x.to(memory_format=torch.channels_last) if x.device.type == "cpu" else x


def lenet5(shape: Shape, classes: int) -> Network:
    """Return LeNet-5 with ReLU and max pooling."""
    channels, height, width = shape
    # The first convolution keeps the size, the second reduces it by 4; a pooling follows each.
    pixels = ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2)
    # ReLU and the maximum commute: after the pooling, ReLU has a quarter of the work.
    rep = nn.Sequential(
        ChannelsLast(),
        nn.Conv2d(channels, 6, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(6, 16, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * pixels, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
    )
    return Network(rep, nn.Linear(84, classes))


def cnn(shape: Shape, classes: int, norm: str) -> Network:
    """Return three 3 x 3 convolutions, the first of stride 2, with poolings between them, and the global average."""
    layers: list[nn.Module] = [ChannelsLast()]
    for inputs, outputs in pairwise((shape[0], *CNN_WIDTHS)):
        stem = outputs == CNN_WIDTHS[0]
        pooled = [nn.MaxPool2d(2)] if outputs != CNN_WIDTHS[-1] else []
        layers += [conv_norm(inputs, outputs, 3, 2 if stem else 1, norm), *pooled, nn.ReLU()]
    rep = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Network(rep, nn.Linear(CNN_WIDTHS[-1], classes))


def resnet(shape: Shape, classes: int, blocks: tuple[int, ...], norm: str) -> Network:
    """Return a residual network for small images: a 3 x 3 stem of stride 1, no pooling before the global average."""
    layers: list[nn.Module] = [conv_norm(shape[0], 64, 3, 1, norm), nn.ReLU()]
    inputs = 64
    for stage, count in enumerate(blocks):
        outputs = 64 * 2**stage
        for block in range(count):
            halve = stage > 0 and block == 0
            layers.append(Block(inputs, outputs, 2 if halve else 1, norm))
            inputs = outputs
    rep = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Network(rep, nn.Linear(inputs, classes))


def vgg16(shape: Shape, classes: int, norm: str) -> Network:
    """Return VGG-16 for small images: thirteen normalised convolutions, and one linear layer instead of three."""
    layers: list[nn.Module] = []
    inputs = shape[0]
    for widths in VGG_WIDTHS:
        for width in widths:
            layers += [conv_norm(inputs, width, 3, 1, norm), nn.ReLU()]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    return Network(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), nn.Linear(inputs, classes))


def firenet(shape: Shape, classes: int) -> Network:
    """Return FireNet (Dunnings and Breckon 2018): AlexNet reduced to three convolutions, for detecting fire."""
    pixels = prod(-(-side // 32) for side in shape[1:])  # a stride of 4 and three poolings, each rounding up
    layers: list[nn.Module] = []
    for conv in (
        nn.Conv2d(shape[0], 64, 5, stride=4, padding=2),
        nn.Sequential(nn.ZeroPad2d((1, 2, 1, 2)), nn.Conv2d(64, 128, 4)),  # an even kernel pads one more at the end
        nn.Conv2d(128, 256, 1),
    ):
        # 1 + 0.0001 times the sum over 11 channels; torch divides alpha by the number of channels.
        layers += [conv, nn.ReLU(), nn.MaxPool2d(3, 2, padding=1), nn.LocalResponseNorm(11, alpha=0.0011)]
    layers.append(nn.Flatten())
    for inputs in (256 * pixels, 4096):
        layers += [nn.Linear(inputs, 4096), nn.Tanh(), nn.Dropout(0.5)]
    return Network(nn.Sequential(*layers), nn.Linear(4096, classes))


class Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str) -> None:
        super().__init__()
        self.first = conv_norm(inputs, outputs, 3, stride, norm)
        self.second = conv_norm(outputs, outputs, 3, 1, norm)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else conv_norm(inputs, outputs, 1, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.second(relu(self.first(x))) + self.shortcut(x))


def conv_norm(inputs: int, outputs: int, size: int, stride: int, norm: str) -> nn.Sequential:
    """Return a convolution and the normalisation of its outputs."""
    conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(OrderedDict(conv=conv, norm=NORMS[norm](outputs)))
