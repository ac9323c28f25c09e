"""Gaussian noise from a secret key: the same for the same key, and not to be guessed without it."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

BITS = 53
"""The bits of a uniform number, as many as a double holds."""


def gaussian(key: bytes, count: int) -> Tensor:
    """Return standard normal numbers in double precision, from the stream of SHAKE-256 by the Box-Muller transform."""
    pairs = -(-count // 2)
    stream = bytearray(hashlib.shake_256(key).digest(16 * pairs))
    whole = torch.frombuffer(stream, dtype=torch.int64) if pairs else torch.zeros(0, dtype=torch.int64)
    uniform = ((whole & (2**BITS - 1)).double() + 0.5) / 2**BITS
    radius, angle = (-2 * uniform[:pairs].log()).sqrt(), 2 * math.pi * uniform[pairs:]
    return torch.cat([radius * angle.cos(), radius * angle.sin()])[:count]
