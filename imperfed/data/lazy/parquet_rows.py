"""Tables in Parquet files, read one row group at a time when a batch needs a row of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.data.lazy.decoded import DecodedRows
from imperfed.data.lazy.image_rows import stamp

Converter = Callable[[Any, int], Tensor]
"""From the columns of a row group and the number of its first row to inputs."""


class ParquetRows(DecodedRows):
    """The rows of a Parquet file, kept as a model sees them before scaling."""

    dtype = torch.float32

    def __init__(self, path: Path, columns: Sequence[str], width: int, convert: Converter, settings: str) -> None:
        """`settings`: what the inputs depend on besides the file."""
        from pyarrow import parquet

        self.path, self.columns, self.convert = path, [*columns], convert
        with parquet.ParquetFile(path) as file:
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        self.groups = np.flatnonzero(sizes).tolist()
        self.stamp = stamp(path)
        digest = hashlib.sha256(f"{path.absolute()}\n{self.stamp}\n{settings}".encode())
        ends = torch.tensor(sizes, dtype=torch.int64)[self.groups].cumsum(0)
        super().__init__(str(path), digest.hexdigest()[:32], ends, (width,))

    def decode(self, unit: int) -> Tensor:
        """Return the rows of a row group."""
        import pyarrow
        from pyarrow import parquet

        if stamp(self.path) != self.stamp:
            raise DataError(f"{self.path}: another file than when the run began; start the run again")
        group = self.groups[unit]
        try:
            with parquet.ParquetFile(self.path) as file:
                table = file.read_row_group(group, columns=self.columns)
                table.validate(full=True)
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(f"{self.path}: row group {group} cannot be read ({error}); write the file again") from error
        first = int(self.ends[unit - 1]) if unit else 0
        return self.convert(table, first)
