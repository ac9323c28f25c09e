"""The size to which images are resized, guessed from some of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from imperfed.data.files.image_files import opened

LOOKED_AT = 50
LARGEST = 224
"""The longest side in pixels before an image is shrunk: the usual input size of image networks."""
GREY = ("1", "L", "LA", "I", "I;16", "F")


def guess_size(images: Iterable[Path]) -> tuple[tuple[int, int], int, str]:
    """Return height and width, channels, and a sentence; unreadable images are left for the reader to report."""
    sizes: Counter[tuple[int, int]] = Counter()
    modes = set()
    for path in islice(images, LOOKED_AT):
        try:
            with opened(path) as image:
                sizes[image.height, image.width] += 1
                modes.add(image.mode)
        except Exception:  # the decoders of Pillow, pydicom and nibabel share no exception type
            continue
    if not sizes:
        return (64, 64), 3, "images: none could be read; 64 x 64 in colour is only a starting point"
    (height, width), _ = sizes.most_common(1)[0]
    shrink = min(1.0, LARGEST / max(height, width))
    size = max(1, round(height * shrink)), max(1, round(width * shrink))
    channels = 1 if modes <= set(GREY) else 3
    seen = f"of {sizes.total()} examined, most are {height} x {width}"
    return size, channels, f"images: resized to {size[0]} x {size[1]}, {'grey' if channels == 1 else 'colour'}; {seen}"
