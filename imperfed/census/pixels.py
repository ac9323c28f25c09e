"""The size to which images are brought, from a look at some of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

LOOKED_AT = 50
LARGEST = 224
"""Pixels beyond which a side is made smaller: what image networks are usually given."""
GREY = ("1", "L", "LA", "I", "I;16", "F")


def guess_size(images: Iterable[Path]) -> tuple[tuple[int, int], int, str]:
    """Height and width, channels, and a sentence; images that cannot be read are for the reader to tell."""
    from PIL import Image

    sizes: Counter[tuple[int, int]] = Counter()
    modes = set()
    for path in islice(images, LOOKED_AT):
        try:
            with Image.open(path) as image:
                sizes[image.height, image.width] += 1
                modes.add(image.mode)
        except (OSError, ValueError, Image.DecompressionBombError):
            continue
    if not sizes:
        return (64, 64), 3, "images: none could be looked at; 64 x 64 in colours is only a start"
    (height, width), _ = sizes.most_common(1)[0]
    shrink = min(1.0, LARGEST / max(height, width))
    size = max(1, round(height * shrink)), max(1, round(width * shrink))
    channels = 1 if modes <= set(GREY) else 3
    seen = f"{sizes.total()} were looked at, most of them {height} x {width}"
    return size, channels, f"images: brought to {size[0]} x {size[1]}, {'grey' if channels == 1 else 'colours'}; {seen}"
