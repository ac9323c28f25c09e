"""Inputs that are read when a batch needs them: a tensor of rows without memory of its own.

`LazyRows` has the shape of the rows and goes wherever a tensor of inputs goes. Choosing rows, cutting and joining them
reads nothing; every other operation reads the rows that it works on, so that no result depends on whether rows are
lazy. What would need too many rows at once is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from imperfed.core.errors import DataError, UsageError

aten = torch.ops.aten
CPU = torch.device("cpu")
MOST = 1 << 30
"""The most bytes that one operation may read at once."""
BLOCK = 1 << 26
"""The bytes of the blocks in which all rows are read where one pass over them is enough."""


class RowSource(Protocol):
    """Where rows are read from, such as a folder of images."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def identity(self) -> str:
        """A digest of what it would read: files, their sizes and times, and how they are decoded."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all rows, [n, ...]."""

    def read(self, rows: Tensor) -> Tensor:
        """Return these rows as float32; a `DataError` names the file of one that cannot be read."""


@dataclass(frozen=True)
class NamedSource:
    """A source that another process has opened; this one opens it by itself, and reads its own files."""

    name: str
    identity: str
    shape: tuple[int, ...]

    def read(self, rows: Tensor) -> Tensor:
        """Return these rows as float32."""
        if self.identity not in OPENED:
            raise DataError(
                f"{self.name}: this rank does not find the files that rank 0 has read, of the same sizes and times; on "
                "several machines lazy inputs need a disk that all of them share"
            )
        return OPENED[self.identity].read(rows)


OPENED: dict[str, RowSource] = {}
"""What this process has opened of what another one names, by identity."""
Step = Callable[[Tensor], Tensor]
"""What is done to every row after it has been read, such as scaling."""


class LazyRows(Tensor):
    """Rows of one or more sources, in any order."""

    sources: tuple[RowSource, ...]
    at: Tensor
    """The number of every row, counted through all sources."""
    steps: tuple[Step, ...]

    @staticmethod
    def __new__(
        cls, sources: Sequence[RowSource], at: Tensor, steps: tuple[Step, ...] = (), device: torch.device = CPU
    ) -> LazyRows:
        """Return rows that are read, and go through the steps, in host memory; then they go to the device."""
        shape = (len(at), *sources[0].shape[1:])
        rows: LazyRows = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32, device=device)
        rows.sources, rows.at, rows.steps = tuple(sources), at, steps
        return rows

    @classmethod
    def of(cls, source: RowSource) -> LazyRows:
        """Return all rows of a source."""
        return cls((source,), torch.arange(source.shape[0]))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"LazyRows({self.name}, shape={tuple(self.shape)})"

    @property
    def name(self) -> str:
        """What messages call the rows."""
        return ", ".join(source.name for source in self.sources[:3]) + ", ..." * (len(self.sources) > 3)

    def then(self, step: Step) -> LazyRows:
        """Return the same rows with one more step after reading."""
        return LazyRows(self.sources, self.at, (*self.steps, step), self.device)

    def chosen(self, which: Tensor | slice) -> LazyRows:
        """Return some of the rows; nothing is read."""
        which = which.cpu() if isinstance(which, Tensor) else which
        return LazyRows(self.sources, self.at[which], self.steps, self.device)

    def read(self) -> Tensor:
        """Return the rows themselves."""
        x = self._gathered()
        for step in self.steps:
            x = step(x)
        return x.to(self.device)

    def _gathered(self) -> Tensor:
        if len(self.sources) == 1:
            return self.sources[0].read(self.at)
        x = torch.empty(self.shape)
        first = 0
        for source in self.sources:
            here = ((self.at >= first) & (self.at < first + source.shape[0])).nonzero().flatten()
            if len(here):
                x[here] = source.read(self.at[here] - first)
            first += source.shape[0]
        return x

    def numpy(self, *, force: bool = False) -> Any:
        """Return the rows as an array."""
        return _read(self, "numpy").numpy(force=force)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in WITHOUT_READING and (rows := WITHOUT_READING[func](*args, **(kwargs or {}))) is not None:
            return rows
        if func._schema.is_mutable:
            raise UsageError(f"lazy rows are never changed, but {_name(func)} would; write lazy = false")

        def values(part: Any) -> Any:
            if not isinstance(part, LazyRows):
                return part
            return _read(part.chosen(slice(0, 0)) if func in OF_NO_ROW else part, _name(func))

        args, kwargs = tree_map(values, (args, kwargs or {}))
        return func(*args, **kwargs)


def read(x: Tensor) -> Tensor:
    """Return the rows themselves, whether they are lazy or not."""
    return x.read() if isinstance(x, LazyRows) else x


def blocks(x: Tensor, rows: int = 0) -> Iterator[Tensor]:
    """Yield the rows themselves, a block at a time if they are lazy; `rows`: how many there are in a block."""
    if not isinstance(x, LazyRows):
        yield from torch.split(x, rows or max(1, len(x)))
        return
    for part in torch.split(x, rows or max(1, BLOCK // max(1, 4 * x.shape[1:].numel()))):
        yield read(part)


# -- operations --------------------------------------------------------------------------------------------------------


def _name(func: Any) -> str:
    return str(func.overloadpacket).rpartition(".")[2]


def _read(x: LazyRows, operation: str) -> Tensor:
    """Return the rows for an operation, unless there are too many to be in memory at once."""
    size = 4 * x.numel()
    if size > MOST:
        raise UsageError(
            f"{x.name}: {operation} needs {len(x):,} rows at once, {size / 1e9:.1f} GB, but they are lazy: write lazy "
            "= false if the memory suffices, or choose a method, repair or model that works batch by batch"
        )
    return x.read()


def _slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return x.chosen(slice(start, end, step)) if dim == 0 else None


def _select(x: Any, dim: int, index: int) -> Any:
    return x.chosen(torch.tensor([index])).read()[0] if dim == 0 else None


def _index_select(x: Any, dim: int, index: Any) -> Any:
    return _read(x.chosen(index), "index_select") if dim == 0 else None


def _index(x: Any, indices: Any) -> Any:
    one = len(indices) == 1 and indices[0] is not None and indices[0].ndim == 1
    return x.chosen(indices[0]) if one and isinstance(x, LazyRows) else None


def _split(x: Any, size: Any, dim: int = 0) -> Any:
    if dim != 0:
        return None
    return [LazyRows(x.sources, at, x.steps, x.device) for at in torch.split(x.at, size)]


def _cat(parts: Any, dim: int = 0) -> Any:
    """Return lazy rows one after the other, if all of them are lazy and go the same way."""
    lazy = dim == 0 and all(isinstance(part, LazyRows) and part.steps == parts[0].steps for part in parts)
    if not lazy:
        return None
    sources: list[RowSource] = []
    at = []
    for part in parts:
        firsts = []
        for source in part.sources:
            if not any(source is known for known in sources):
                sources.append(source)
            place = next(i for i, known in enumerate(sources) if known is source)
            firsts.append(sum(known.shape[0] for known in sources[:place]))
        at.append(_counted_through(part, firsts))
    return LazyRows(sources, torch.cat(at), parts[0].steps, parts[0].device)


def _counted_through(part: LazyRows, firsts: Sequence[int]) -> Tensor:
    """Return the numbers of rows if its sources begin at other numbers."""
    ends = torch.tensor([source.shape[0] for source in part.sources]).cumsum(0)
    moved = torch.tensor(firsts) - (ends - torch.tensor([source.shape[0] for source in part.sources]))
    return part.at + moved[torch.bucketize(part.at, ends, right=True)]


def _same(x: Any) -> Any:
    return x.chosen(slice(None))


def _moved(x: Any, *, dtype: Any = None, device: Any = None, **how: Any) -> Any:
    """Return the rows of another device; other numbers, such as integers, need the rows themselves."""
    return LazyRows(x.sources, x.at, x.steps, device) if device is not None and dtype in (None, x.dtype) else None


WITHOUT_READING: dict[Any, Callable[..., Any]] = {
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.index.Tensor: _index,
    aten.index_select.default: _index_select,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split,
    aten.cat.default: _cat,
    aten.detach.default: _same,
    aten.alias.default: _same,
    aten._to_copy.default: _moved,
}
"""What needs no more than the chosen rows, if any; None: this call does."""
OF_NO_ROW = {aten.new_empty.default, aten.new_zeros.default, aten.new_ones.default, aten.new_full.default}
"""What takes only the kind of numbers from its input."""
