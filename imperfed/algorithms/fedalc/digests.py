"""Keyed digests: who has the key can tell equal things apart from unequal ones, who has not learns nothing but that.

A plain hash of one of C labels is undone by hashing all C. HMAC-SHA-256 under a key that the sites share and the server
does not know leaves the server nothing to try. What it still shows: which things are equal, and how often they occur.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

import torch
from torch import Tensor

SIZE = 32
"""Bytes of a digest."""

STEPS = 1 << 20
"""Steps between 0 and 1 to which features are rounded before they are digested."""


def digest(key: bytes, field: str, value: bytes) -> bytes:
    """HMAC-SHA-256 of `v1|field|value`: things of different fields never meet."""
    return hmac.digest(key, b"v1|" + field.encode() + b"|" + value, "sha256")


def quantised(features: Tensor) -> list[bytes]:
    """Features rounded to `STEPS`, as little-endian 64-bit numbers, a string a row.

    They should be worked out in float64: its rounding, which differs from batch to batch, is so far below a step that
    two sites with the same example agree.
    """
    whole = (features.double() * STEPS).round().to(torch.int64).cpu().numpy().astype("<i8")
    return [row.tobytes() for row in whole]


def digests(key: bytes, field: str, values: Iterable[bytes]) -> Tensor:
    """The digests of many values: uint8 [n, 32]."""
    joined = b"".join(digest(key, field, value) for value in values)
    return torch.frombuffer(bytearray(joined), dtype=torch.uint8).view(-1, SIZE)


def numbered(tags: Tensor) -> Tensor:
    """A number for every distinct digest, the same for equal ones: int64 [n]."""
    number: Tensor = tags.unique(dim=0, return_inverse=True)[1]
    return number
