"""Keyed digests: they show which values are equal, and without the key nothing else.

A plain hash of one of C labels is inverted by hashing all C. With HMAC-SHA-256 under a key that the sites share and the
server does not know, the server cannot try values. It still sees which values are equal and how often they occur.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

import torch
from torch import Tensor

SIZE = 32
"""The number of bytes in a digest."""

STEPS = 1 << 20
"""The number of steps between 0 and 1 to which features are rounded before they are digested."""


def digest(key: bytes, field: str, value: bytes) -> bytes:
    """Return the HMAC-SHA-256 of `v1|field|value`: values of different fields never have equal digests."""
    return hmac.digest(key, b"v1|" + field.encode() + b"|" + value, "sha256")


def quantised(features: Tensor) -> list[bytes]:
    """Return the features rounded to `STEPS`, as little-endian 64-bit integers, one byte string per row.

    They should be computed in float64: its rounding errors, which differ from batch to batch, are so far below a step
    that two sites with the same example agree.
    """
    whole = (features.double() * STEPS).round().to(torch.int64).cpu().numpy().astype("<i8")
    return [row.tobytes() for row in whole]


def digests(key: bytes, field: str, values: Iterable[bytes]) -> Tensor:
    """Return the digests of many values: uint8 [n, 32]."""
    joined = b"".join(digest(key, field, value) for value in values)
    return torch.frombuffer(bytearray(joined), dtype=torch.uint8).view(-1, SIZE)


def numbered(tags: Tensor) -> Tensor:
    """Return a number for every digest, the same for equal ones: int64 [n]."""
    number: Tensor = tags.unique(dim=0, return_inverse=True)[1]
    return number
