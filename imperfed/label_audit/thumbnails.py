"""Small pictures of rows that are images, as text that a page can hold."""

from __future__ import annotations

import base64
import io

import torch
from torch import Tensor

from imperfed.data.scale import Scale

SIDE = 64
"""The longer side of a thumbnail in pixels; smaller images stay as they are."""
QUALITY = 85


def are_images(x: Tensor) -> bool:
    """Return whether inputs are images that can be drawn."""
    return x.ndim == 4 and x.shape[1] in (1, 3) and min(x.shape[2:]) >= 4


def thumbnail(x: Tensor, scale: Scale) -> str:
    """Return an image [channels, height, width] as a data URI; `scale`: by which it was standardised."""
    from PIL import Image

    pixels = x * scale.spread + scale.mean if len(scale.mean) else x
    low, high = float(pixels.min()), float(pixels.max())
    if low < 0 or high > 1:  # not in 0 .. 1: from the darkest to the brightest of this image
        pixels = (pixels - low) / max(high - low, 1e-12)
    levels = (pixels.clamp(0, 1) * 255).round().to(torch.uint8).movedim(0, -1).numpy()
    image = Image.fromarray(levels[..., 0] if levels.shape[2] == 1 else levels)
    image.thumbnail((SIDE, SIDE))
    stored = io.BytesIO()
    image.save(stored, "WEBP", quality=QUALITY)
    return f"data:image/webp;base64,{base64.b64encode(stored.getvalue()).decode()}"
