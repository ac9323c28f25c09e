"""Images that are decoded when a batch needs them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.data.lazy.decoded import DecodedRows

Decoder = Callable[[Path], npt.NDArray[np.uint8] | str]
"""From a path to the pixels, or why they cannot be read."""
NO_FILE = (-1, -1)


class ImageRows(DecodedRows):
    """One image per row, kept as bytes: [channels, height, width]."""

    dtype = torch.uint8

    def __init__(
        self,
        paths: tuple[Path, Any],
        shape: tuple[int, ...],
        decoder: Decoder,
        settings: str,
        problem: Callable[[int, str], str],
    ) -> None:
        """`paths`: a folder, and a pyarrow array of paths in it. `settings`: what else the pixels depend on.

        `problem`: from a row and what was found there to a message.
        """
        self.folder, self.names = paths
        self.decoder, self.problem = decoder, problem
        self.stamps = np.array([stamp(self.path(row)) for row in range(len(self.names))], np.int64).reshape(-1, 2)
        digest = hashlib.sha256(f"{self.folder.absolute()}\n{settings}\n".encode())
        for name in self.names:
            digest.update(f"{name}\n".encode())
        digest.update(self.stamps.tobytes())
        ends = torch.arange(1, len(self.names) + 1)
        super().__init__(str(self.folder), digest.hexdigest()[:32], ends, shape)

    def path(self, row: int) -> Path:
        """Return the file of a row."""
        return self.folder / str(self.names[row].as_py() or "")

    def missing(self) -> list[int]:
        """Return the rows without a file."""
        return np.flatnonzero((self.stamps == NO_FILE).all(1)).tolist()

    def decode(self, unit: int) -> Tensor:
        """Return one image."""
        path = self.path(unit)
        found = self.decoder(path)
        if stamp(path) != tuple(self.stamps[unit].tolist()):
            found = "another file than when it was listed"
        if isinstance(found, str):
            raise DataError(self.problem(unit, found))
        return torch.from_numpy(np.ascontiguousarray(found))[None]

    def finish(self, rows: Tensor) -> Tensor:
        """Return pixels from 0 to 1."""
        return rows.float().div_(255)


def stamp(path: Path) -> tuple[int, int]:
    """Return the size and the modification time of a file, if there is one."""
    try:
        stat = path.stat()
    except (OSError, ValueError):
        return NO_FILE
    return stat.st_size, stat.st_mtime_ns
