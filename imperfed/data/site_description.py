"""What sites report about themselves before a run, and whether their data can be combined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from imperfed.core.batch import Tree
from imperfed.core.errors import DataError
from imperfed.core.foreign_text import printable


@dataclass(frozen=True)
class SiteInfo:
    """What a site reports about itself before a run: row counts, kind of labels, sums for scaling. Never a row."""

    name: str
    rows: int
    kind: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    """The shape of one input."""
    features: int
    """The number of features of sparse inputs; 0 if they are not sparse."""
    tests: int
    """The number of test rows; -1 without a test set."""
    several: bool
    """Whether a test row may have several classes."""
    sums: Tree
    """Count, sum and sum of squares of every feature, and quantiles of those whose blanks are filled by medians; empty
    if inputs are neither scaled nor filled."""
    annotated: Tree
    """The classes that the site annotates, if labels may be missing."""
    held_out: int = 0
    """The number of rows that the site holds out; they are not among `rows`."""
    digest: str = ""
    """Of all its rows, with a key that the coordinator does not know: the same as long as the files are."""


def check_alike(infos: Sequence[SiteInfo], classes: tuple[str, ...]) -> None:
    """Refuse sites whose data cannot be combined in one run, naming the site that differs from most."""
    if empty := [info.name for info in infos if info.rows < 1]:
        raise DataError(f"{empty[0]}: the site has no training rows")
    for what, values in (
        ("classes", [info.classes for info in infos]),
        ("kind of labels", [info.kind for info in infos]),
        ("shape of an input", [info.features or info.shape for info in infos]),
        ("test rows", [info.tests >= 0 for info in infos]),
        ("test classes per row", ["several" if info.several else "one" for info in infos]),
        ("sums", [shapes(info.sums) for info in infos]),
        ("annotated classes", [shapes(info.annotated) for info in infos]),
    ):
        usual = Counter(map(str, values)).most_common(1)[0][0]
        expected = str(classes) if what == "classes" else usual
        for info, value in zip(infos, map(str, values), strict=True):
            if value != expected:
                differs = f"its {what} ({printable(value)}) differ from the other sites' ({printable(expected)})"
                raise DataError(f"{info.name}: {differs}")


def shapes(tree: Tree) -> dict[str, tuple[int, ...] | str]:
    """Return what tensors must share to be added up: their shapes; tensors that are not finite match none."""
    return {name: tuple(t.shape) if torch.isfinite(t).all() else "not finite" for name, t in tree.items()}
