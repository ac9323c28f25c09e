"""The truth. Only `imperfed.data`, which creates it, and `imperfed.evaluation`, which reads it, may import this."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Oracle:
    """What no algorithm may see: true training labels and clean test sets.

    Truth is int64 [n] if an example has one class and int8 [n, C] (1 present, 0 absent) if it may have several.
    """

    truth: Tensor | None
    """True labels of the federation's rows, in its order; None if they are unknown."""
    test_x: tuple[Tensor, ...]
    """One clean test set per site."""
    test_y: tuple[Tensor, ...]
    common_x: Tensor | None = None
    """A test set that belongs to no site, if the dataset has one."""
    common_y: Tensor | None = None
    one_test: bool = False
    """Whether every site's test set is the common one."""
    tasks: tuple[int, ...] = ()
    """The task of every site, if the split has tasks."""
    test_group: tuple[Tensor, ...] = ()
    """The true groups of each site's test rows; empty without a sensitive attribute, or if they are unknown."""
    validation_x: Tensor | None = None
    """Further rows of no site, for choosing settings, so that the test set is used only once."""
    validation_y: Tensor | None = None
