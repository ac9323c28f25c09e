"""The truth. Only `imperfed.data`, which makes it, and `imperfed.evaluation`, which reads it, may import this."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Oracle:
    """What no algorithm may see: true training labels and clean test sets.

    Truth is int64 [n] where an example has one class and int8 [n, C] (1 present, 0 absent) where it may have several.
    """

    truth: Tensor | None
    """True labels of the federation's rows, in its order; None where nobody knows them."""
    test_x: tuple[Tensor, ...]
    """One clean test set a site."""
    test_y: tuple[Tensor, ...]
    common_x: Tensor | None = None
    """A test set of no site in particular, where the dataset has one."""
    common_y: Tensor | None = None
    one_test: bool = False
    """Whether the sites' test sets are one and the same, the common one."""
    tasks: tuple[int, ...] = ()
    """The task of every site, where the split has tasks."""
    test_group: tuple[Tensor, ...] = ()
    """The true group of every test row, a site each; empty without a sensitive attribute, or where nobody knows."""
    validation_x: Tensor | None = None
    """Further rows of no site, on which settings are chosen so that the test set is looked at once."""
    validation_y: Tensor | None = None
