"""Tables that are handed over in memory instead of as files, under the names by which messages call them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

IN_MEMORY = "in-memory"
"""What `run.data` says if the rows were handed over in memory."""


@dataclass(frozen=True, eq=False)
class MemoryTable:
    """The columns of a table: pyarrow arrays, or NumPy arrays if a row has several values."""

    name: str
    """How a caller would write it, such as `data['north']`."""
    columns: Mapping[str, Any]
    rows: int
    index: Any = None
    """The caller's own names of the rows, such as the index of a pandas frame, as a pyarrow array."""
    suffix: str = ".parquet"
    """The suffix of the files that are read by the same rules: .parquet for tables, .npz for arrays."""

    def __str__(self) -> str:
        return self.name

    @property
    def parent(self) -> Path:
        """The folder to which paths of images are relative: the current one."""
        return Path()


Source = Path | MemoryTable
"""Where the rows of a table are."""
