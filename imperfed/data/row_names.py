"""The names of many rows, without a Python object for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from torch import Tensor

AT_ONCE = 1 << 16
"""How many names become Python texts at once."""


class RowNames(Sequence[str]):
    """A sequence of texts that are kept as a pyarrow array."""

    def __init__(self, array: Any) -> None:
        """`array`: of text without nulls, in one piece."""
        self.array = array

    @classmethod
    def numbered(cls, numbers: Tensor) -> RowNames:
        """Return numbers as names."""
        import pyarrow

        return cls(pyarrow.array(numbers.numpy()).cast(pyarrow.string()))

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, which: int) -> str: ...
    @overload
    def __getitem__(self, which: slice) -> RowNames: ...
    def __getitem__(self, which: int | slice) -> str | RowNames:
        if isinstance(which, slice):
            return RowNames(self.array[which])
        return str(self.array[which].as_py())

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), AT_ONCE):
            yield from self.array.slice(first, AT_ONCE).to_pylist()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RowNames):
            return bool(self.array.equals(other.array))
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(str.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]

    def take(self, rows: Tensor) -> RowNames:
        """Return the names of some rows."""
        return RowNames(self.array.take(rows.numpy()))


def taken(names: Sequence[str], rows: Tensor) -> Sequence[str]:
    """Return the names of some rows."""
    return names.take(rows) if isinstance(names, RowNames) else tuple(names[row] for row in rows.tolist())


def one_after_another(parts: Sequence[Sequence[str]]) -> Sequence[str]:
    """Return the names of several sites' rows as one sequence."""
    import pyarrow

    arrays = [part.array for part in parts if isinstance(part, RowNames)]
    if len(arrays) == len(parts):
        return RowNames(pyarrow.concat_arrays(arrays))
    return tuple(name for part in parts for name in part)


def listed_or_kept(names: Sequence[str]) -> Sequence[str]:
    """Return names as a list, which few of them may well be, unless they are an array."""
    return names if isinstance(names, RowNames) else list(names)
