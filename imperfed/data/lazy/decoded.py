"""Rows that are decoded when they are first needed, and kept on disk from then on as far as there is room."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from imperfed.core.cache import cache_folder
from imperfed.core.lazy import LazyRows
from imperfed.data.lazy.row_store import RowStore

FOLDER = "rows"


class DecodedRows(ABC):
    """A source of lazy rows; a unit is what is decoded at once, such as an image or a row group."""

    dtype: torch.dtype
    """Of the rows as they are kept."""

    def __init__(self, name: str, identity: str, ends: Tensor, shape: tuple[int, ...]) -> None:
        self.name, self.identity, self.ends = name, identity, ends
        self.shape = int(ends[-1]), *shape
        self.store: RowStore | None = None

    @abstractmethod
    def decode(self, unit: int) -> Tensor:
        """Return the rows of a unit; a `DataError` names the file and the row of what cannot be read."""

    def finish(self, rows: Tensor) -> Tensor:
        """Return rows as a model sees them, from how they are kept."""
        return rows

    @property
    def row_bytes(self) -> int:
        """The size of a row as it is kept."""
        return torch.Size(self.shape[1:]).numel() * self.dtype.itemsize

    def keep(self, rows: int) -> None:
        """Keep decoded rows on disk: the first so many of them, in whole units."""
        units = int((self.ends <= rows).sum())
        if units:
            path = cache_folder(FOLDER) / f"{self.identity}-{units}.rows"
            self.store = RowStore(path, self.ends[:units], self.shape[1:], self.dtype)

    def read(self, rows: Tensor) -> Tensor:
        """Return these rows as float32."""
        units = torch.bucketize(rows, self.ends, right=True)
        there = torch.zeros_like(units, dtype=torch.bool) if self.store is None else self.store.has(units)
        if self.store is not None and there.all():
            return self.finish(self.store.rows.index_select(0, rows))
        chosen = torch.empty(len(rows), *self.shape[1:], dtype=self.dtype)
        if self.store is not None:
            chosen[there] = self.store.rows.index_select(0, rows[there])
        for unit in units[~there].unique().tolist():
            decoded, here = self.decode(unit), units == unit
            chosen[here] = decoded[rows[here] - (int(self.ends[unit]) - len(decoded))]
            if self.store is not None:
                self.store.put(unit, decoded)
        return self.finish(chosen)


def share_room(inputs: Iterable[Tensor], limit: int) -> None:
    """Let all sources of lazy inputs keep rows on disk, of no more than `limit` bytes in all.

    If that is not room for all rows, each source keeps the same share of its own. Every pass over the rows needs all
    of them once, so that no other choice would be found on disk more often.
    """
    sources = {
        source.identity: source
        for x in inputs
        if isinstance(x, LazyRows)
        for source in x.sources
        if isinstance(source, DecodedRows)
    }
    total = sum(source.shape[0] * source.row_bytes for source in sources.values())
    for source in sources.values():
        source.keep(source.shape[0] if total <= limit else source.shape[0] * limit // total)
    if sources:
        stores = [source.store for source in sources.values() if source.store is not None]
        make_room(cache_folder(FOLDER), limit, {store.path for store in stores})


def make_room(folder: Path, limit: int, needed: set[Path]) -> None:
    """Remove other files, the longest unused first, until no more than `limit` bytes are kept.

    Another run that uses such a file keeps what it has mapped; it may also remove files at the same time.
    """
    kept = []
    for path in folder.glob("*.rows"):
        with suppress(FileNotFoundError):
            kept.append((path.stat(), path))
    total = sum(stat.st_size for stat, _ in kept)
    for stat, path in sorted(kept, key=lambda one: one[0].st_mtime_ns):
        if total > limit and path not in needed:
            path.unlink(missing_ok=True)
            path.with_suffix(".sums").unlink(missing_ok=True)
            total -= stat.st_size
