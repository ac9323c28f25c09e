"""DenseNet-121 (Huang et al., "Densely connected convolutional networks", CVPR 2017) for images of 32 pixels and more.

Every layer receives the outputs of all earlier layers of its block. Nothing is computed in place.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from imperfed.core.network import Network
from imperfed.models.zoo import NORMS, Shape

BLOCKS = (6, 12, 24, 16)
GROWTH, BOTTLENECK, STEM = 32, 128, 64
"""k, 4 k, 2 k: channels that a layer adds, channels between its two convolutions, channels before the first block."""
MIN_SIDE = 32
"""The stem and three transitions halve an image five times."""


class Dense(nn.Sequential):
    """A block: the output of each layer is appended to its input."""

    def forward(self, x: Tensor) -> Tensor:
        for layer in cast(Iterable[nn.Module], self):
            x = torch.cat([x, layer(x)], 1)
        return x


def densenet121(shape: Shape, classes: int, norm: str) -> Network:
    """Return the published network; `norm` "batch" is as published, "group" replaces BatchNorm by GroupNorm."""
    stem = nn.Conv2d(shape[0], STEM, 7, 2, padding=3, bias=False)
    layers: list[nn.Module] = [stem, activated(STEM, norm), nn.MaxPool2d(3, 2, padding=1)]
    channels = STEM
    for number, count in enumerate(BLOCKS):
        layers.append(Dense(*(layer(channels + i * GROWTH, norm) for i in range(count))))
        channels += count * GROWTH
        if number + 1 < len(BLOCKS):
            layers.append(transition(channels, norm))
            channels //= 2
    rep = nn.Sequential(*layers, activated(channels, norm), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for module in rep.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    return Network(rep, nn.Linear(channels, classes))


def layer(inputs: int, norm: str) -> nn.Sequential:
    """Return a 1 x 1 convolution to the bottleneck and a 3 x 3 convolution to the channels added."""
    return nn.Sequential(
        activated(inputs, norm),
        nn.Conv2d(inputs, BOTTLENECK, 1, bias=False),
        activated(BOTTLENECK, norm),
        nn.Conv2d(BOTTLENECK, GROWTH, 3, padding=1, bias=False),
    )


def transition(inputs: int, norm: str) -> nn.Sequential:
    """Return layers that halve the channels and the side."""
    return nn.Sequential(activated(inputs, norm), nn.Conv2d(inputs, inputs // 2, 1, bias=False), nn.AvgPool2d(2))


def activated(channels: int, norm: str) -> nn.Sequential:
    """Return normalisation followed by ReLU."""
    return nn.Sequential(OrderedDict(norm=NORMS[norm](channels), relu=nn.ReLU()))
