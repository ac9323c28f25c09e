"""Random changes of images [n, channels, height, width] in training, from random numbers that were drawn before.

Shapes are static, and an image depends on its own numbers only, so that the same numbers give the same images anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from imperfed.core.batch import Tree

PREFIX = "augment/"
"""The prefix of these random numbers among those of a local step."""
BORDER = 8
"""An image is padded by 1/8 of its height and width on every side: by 4 where it has 32 x 32 pixels."""


@dataclass(frozen=True)
class Augmentation:
    """One kind of change."""

    numbers: tuple[int, ...]
    """The shape of the random numbers, uniform in 0 .. 1, that one image needs."""
    apply: Callable[[Tensor, Tensor], Tensor]
    """From images and their random numbers to changed images of the same shape."""


def crop(x: Tensor, u: Tensor) -> Tensor:
    """Pad images with zeros and cut out a window of their own size, at a place drawn uniformly."""
    height, width = x.shape[2:]
    border = [max(1, side // BORDER) for side in (height, width)]
    padded = pad(x, (border[1], border[1], border[0], border[0]))
    # u is below 1, but its product with a number may be rounded up to that number.
    top, left = ((u[:, i] * (2 * b + 1)).long().clamp(max=2 * b) for i, b in enumerate(border))
    rows = top.unsqueeze(1) + torch.arange(height, device=x.device)
    columns = left.unsqueeze(1) + torch.arange(width, device=x.device)
    lines = padded.gather(2, rows[:, None, :, None].expand(-1, x.shape[1], -1, padded.shape[3]))
    return lines.gather(3, columns[:, None, None, :].expand(-1, x.shape[1], height, -1))


def flip(x: Tensor, u: Tensor) -> Tensor:
    """Mirror every second image, on average, left to right."""
    return torch.where((u < 0.5)[:, None, None, None], x.flip(3), x)


AUGMENTATIONS = {"crop": Augmentation((2,), crop), "flip": Augmentation((), flip)}


def draw_augmentations(names: Sequence[str], steps: int, batch: int, generator: torch.Generator) -> Tree:
    """Return the random numbers of a round's steps, [steps, batch, ...] for each of these augmentations."""
    return {
        PREFIX + name: torch.rand(steps, batch, *AUGMENTATIONS[name].numbers, generator=generator) for name in names
    }


def augment(x: Tensor, draws: Tree) -> Tensor:
    """Return the images changed as their random numbers say, in the order of these."""
    for name, u in draws.items():
        x = AUGMENTATIONS[name.removeprefix(PREFIX)].apply(x, u)
    return x


def separate(draws: Tree) -> tuple[Tree, Tree]:
    """Return the random numbers that an algorithm asked for, and those of augmentations."""
    own = {name: t for name, t in draws.items() if not name.startswith(PREFIX)}
    return own, {name: t for name, t in draws.items() if name not in own}
