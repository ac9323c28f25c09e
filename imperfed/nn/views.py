"""Changed views of a batch's inputs, from random numbers that were drawn before: images, and rows of numbers.

An image is moved, its brightness and contrast change, and a square of it is covered; it is never mirrored or turned,
since that could change what it shows. A row of numbers, standardised as tables are, is shaken, and some of its numbers
are replaced by 0, their mean.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from imperfed.nn.augment import crop

NUMBERS = 6
"""How many random numbers, uniform in 0 .. 1, the strong view of one input needs."""
JITTER = 0.1
"""The standard deviation by which numbers are shaken in a strong view."""
HIDDEN = 0.25
"""The share of a row's numbers, and of an image's height and width, that a strong view hides."""
LIGHT = 0.2
"""How much the brightness and the contrast of an image change at most in a strong view."""


def strong_view(x: Tensor, u: Tensor) -> Tensor:
    """Return a view of every input that differs much from it; u holds `NUMBERS` random numbers per input."""
    if x.ndim == 4:
        return cover(relight(crop(x, u[:, :2]), u[:, 2:4]), u[:, 4:6])
    return hide(shake(x, u[:, :2], JITTER), u[:, 2:4])


def shake(x: Tensor, u: Tensor, jitter: float) -> Tensor:
    """Move every number of a row along a wave of random phase and frequency, with this standard deviation."""
    return x + (jitter * math.sqrt(2) * wave(x, u)).view_as(x)


def hide(x: Tensor, u: Tensor) -> Tensor:
    """Replace the numbers of a row by 0 where a wave is near its top, which is a share `HIDDEN` of them on average."""
    return torch.where((wave(x, u) > math.cos(math.pi * HIDDEN)).view_as(x), 0.0, x)


def wave(x: Tensor, u: Tensor) -> Tensor:
    """Return a wave over the numbers of every row, [n, numbers]: its frequency and phase are those of u."""
    place = torch.arange(1, x[0].numel() + 1, device=x.device)
    return torch.cos(2 * math.pi * (u[:, :1] * place + u[:, 1:2]))


def relight(x: Tensor, u: Tensor) -> Tensor:
    """Change the contrast of images around their own mean, and their brightness by a share of their own spread."""
    spread, mean = torch.std_mean(x, (1, 2, 3), correction=0, keepdim=True)
    contrast, brightness = (LIGHT * (2 * u[:, i, None, None, None] - 1) for i in (0, 1))
    return mean + (1 + contrast) * (x - mean) + brightness * spread


def cover(x: Tensor, u: Tensor) -> Tensor:
    """Cover a window of every image, at a place drawn uniformly, with the image's mean."""
    inside = [within(side, u[:, i]) for i, side in enumerate(x.shape[2:])]
    window = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return torch.where(window, x.mean((1, 2, 3), keepdim=True), x)


def within(side: int, u: Tensor) -> Tensor:
    """Return which of so many pixels lie in a window that covers a share `HIDDEN` of them, [n, side]."""
    length = max(1, round(HIDDEN * side))
    first = (u * (side - length + 1)).long().clamp(max=side - length).unsqueeze(1)  # the product may round up
    at = torch.arange(side, device=u.device)
    return (at >= first) & (at < first + length)
