"""What a kind of labels needs in order to read itself from the cells of a user's file.

A kind knows nothing about the files themselves, their columns or their line numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

UNKNOWN = -1
"""The mark of a class that is not annotated."""

NoteRow = Callable[[int, str, str, str], None]
"""Notes a problem in one row: its number, what was found, what was expected, and the fix."""


class UnreadableError(ValueError):
    """A cell that cannot be read, with what was expected and the fix."""

    def __init__(self, expected: str, fix: str) -> None:
        super().__init__(expected, fix)
        self.expected, self.fix = expected, fix


@dataclass(frozen=True)
class Cells:
    """How to read cells, according to a declaration. Every reader raises `UnreadableError` on a cell it cannot read."""

    classes: tuple[str, ...]
    separator: str
    text_in: Callable[[Any], str]
    """The text of a cell: whole numbers without a point, empty for a blank."""
    class_in: Callable[[Any], int]
    """The number of the one class that a cell names."""
    classes_in: Callable[[Any], list[int]]
    """The numbers of the classes that a cell or a list names, in the same order."""
    mark_in: Callable[[Any], int]
    """1 for a class that is present, 0 for one that is absent, `UNKNOWN` for one that is not annotated."""

    def row(self, members: list[int]) -> npt.NDArray[np.bool_]:
        """Return a row of a matrix with one column per class in which these classes are marked."""
        row = np.zeros(len(self.classes), np.bool_)
        row[members] = True
        return row
