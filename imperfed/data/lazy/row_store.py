"""Decoded rows in a file that is mapped into memory, so that they can be dropped from it at any time."""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path

import torch
from torch import Tensor

from imperfed.core.errors import DataError

THERE = 1 << 32
"""Marks a checksum, so that none is 0, which means that a unit was not decoded yet."""


class RowStore:
    """Rows in units that are decoded together, such as one image or a row group; processes may share the file.

    The checksum of a unit is written after its rows, and checked when a process first uses them: what a crash of the
    machine has left half written is decoded again.
    """

    def __init__(self, path: Path, ends: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.path, rows = path, int(ends[-1])
        self.starts, self.ends = torch.cat([ends.new_zeros(1), ends[:-1]]), ends
        self.rows = _mapped(path, rows * torch.Size(shape).numel(), dtype).view(rows, *shape)
        self.sums = _mapped(path.with_suffix(".sums"), len(ends), torch.int64)
        self.checked = torch.zeros(len(ends), dtype=torch.bool)

    def has(self, units: Tensor) -> Tensor:
        """Return which units are here."""
        inside = units < len(self.ends)
        if not inside.all():
            here = torch.zeros_like(inside)
            here[inside] = self.has(units[inside])
            return here
        for unit in units[(self.sums[units] != 0) & ~self.checked[units]].unique().tolist():
            self.checked[unit] = _sum(self.rows[self.starts[unit] : self.ends[unit]]) == int(self.sums[unit])
        return self.checked[units]

    def put(self, unit: int, rows: Tensor) -> None:
        """Keep the rows of a unit, if there is a place for it."""
        if unit < len(self.ends):
            self.rows[self.starts[unit] : self.ends[unit]] = rows
            self.sums[unit] = _sum(rows)
            self.checked[unit] = True


def _sum(rows: Tensor) -> int:
    return zlib.crc32(rows.contiguous().view(-1).view(torch.uint8).numpy().data) | THERE


def _mapped(path: Path, numbers: int, dtype: torch.dtype) -> Tensor:
    """Return the numbers in a file, which gets all of its room on the disk now: a disk may be full later."""
    size = numbers * dtype.itemsize
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            os.posix_fallocate(file.fileno(), 0, size)
        os.utime(path)
    except OSError as error:
        free = shutil.disk_usage(path.parent).free if path.parent.is_dir() else 0
        raise DataError(
            f"{path.parent}: no room for {size / 1e9:.1f} GB of decoded rows ({free / 1e9:.1f} GB are free: "
            f"{error.strerror}); lower inputs.cache, or let XDG_CACHE_HOME name a folder on another disk"
        ) from error
    return torch.from_file(str(path), shared=True, size=numbers, dtype=dtype)
