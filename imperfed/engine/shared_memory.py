"""Tensors in memory that forked processes share."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor


def shared(like: Tensor) -> Tensor:
    """Return a copy in anonymous shared memory: the server sees what a forked worker writes."""
    return shared_room(like.shape, like.dtype).copy_(like)


def lasting(like: Tensor, device: torch.device) -> Tensor:
    """Return a copy for the server's memory: on a GPU, or in memory that forked processes share."""
    return shared(like) if device.type == "cpu" else like.to(device, copy=True)


def shared_room(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return zeros in anonymous shared memory, which takes none before it is written."""
    size = math.prod(shape) * dtype.itemsize
    if size == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    return torch.frombuffer(mmap.mmap(-1, size), dtype=dtype).view(tuple(shape))
