"""What a site says about itself before a run is a claim: refused if no rows could have it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.errors import DataError
from imperfed.data.moments import LEVELS
from imperfed.data.site_description import SiteInfo, shapes

MOST_ROWS = 2**40
MOST_NUMBERS, MOST_LENGTHS = 2**31, 8
"""In one input, and of its shape."""
LONGEST_DIGEST = 200
LARGEST_VALUE = torch.finfo(torch.float32).max
"""Of an input, which is in float32."""
SUMS = {"count": torch.int64, "sum": torch.float64, "square": torch.float64, "mistakes": torch.int64}
"""What `Moments` sends, and its types."""
MEDIANS = {"quantiles": torch.float64, "known": torch.int64}
"""What it sends besides where blanks are filled by medians."""
ROUNDING = 1e-6


def check_claims(info: SiteInfo) -> None:
    """Refuse what a site cannot hold, whatever it says: counts out of range, sums that no rows have."""
    counts = (("rows", info.rows, 1), ("test rows", info.tests, -1), ("held-out rows", info.held_out, 0))
    for what, count, least in counts:
        if not least <= count <= MOST_ROWS:
            raise DataError(f"{info.name}: it cannot have {count} {what}")
    if wrong_shape(info):
        raise DataError(f"{info.name}: {info.shape} is not the shape of an input")
    if info.annotated and forms(info.annotated) != {"classes": ((len(info.classes),), torch.bool)}:
        raise DataError(f"{info.name}: its annotated classes are not one flag per class")
    if len(info.digest) > LONGEST_DIGEST or not info.digest.isprintable():
        raise DataError(f"{info.name}: {info.digest!r} is not a digest of rows")
    if info.sums and (problem := wrong_sums(info) or wrong_quantiles(info)):
        raise DataError(f"{info.name}: its sums for the scaling cannot be right: {problem}")


def wrong_shape(info: SiteInfo) -> bool:
    """Return whether no input of a reasonable size has this shape."""
    lengths = (*info.shape, info.features)
    if len(lengths) > MOST_LENGTHS or not all(type(n) is int and 0 <= n <= MOST_NUMBERS for n in lengths):
        return True
    return math.prod(info.shape) > MOST_NUMBERS


def forms(tree: Tree) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Return shape and type of every tensor."""
    return {name: (tuple(t.shape), t.dtype) for name, t in tree.items()}


def wrong_sums(info: SiteInfo) -> str:
    """Return what is wrong with a site's sums; empty if some rows could have them.

    Of a table, every column has its own count: blanks and numbers beyond reason are left out.
    """
    expected = SUMS | (MEDIANS if MEDIANS.keys() & info.sums.keys() else {})
    if {name: t.dtype for name, t in info.sums.items()} != expected:
        return f"they should be {', '.join(expected)}"
    count, total, square, mistakes = (info.sums[name].double() for name in SUMS)
    is_table, rows = len(info.shape) == 1, info.rows + info.held_out
    columns = info.shape if is_table else (*info.shape[:1], *(1 for _ in info.shape[1:]))
    if count.shape != (columns if is_table else ()) or mistakes.ndim or not columns == total.shape == square.shape:
        return f"{shapes(info.sums)} do not fit inputs of shape {info.shape}"
    if not (torch.isfinite(total).all() and torch.isfinite(square).all()):
        return "they are not finite"
    values = float(rows if is_table else rows * math.prod(info.shape[1:]))
    if wrong := wrong_counts(count, float(mistakes), values, exactly=not is_table):
        return wrong
    too_large = (total.abs() > count * LARGEST_VALUE).any() or (square > count * LARGEST_VALUE**2).any()
    if too_large or (square < 0).any() or (total.square() > count * square * (1 + ROUNDING) + 1e-30).any():
        return "no numbers have such a sum and such a sum of squares"
    return ""


def wrong_counts(count: Tensor, mistakes: float, values: float, exactly: bool) -> str:
    """Return what is wrong with the numbers of values behind sums; `values`: as many as there can be in each."""
    if (count < 0).any() or (count > values).any() or (exactly and (count != values).any()):
        return f"they count {float(count.max()):.0f} values per column, and its rows have {values:.0f}"
    if not 0 <= mistakes <= float((values - count).sum()):
        return f"they leave {mistakes:.0f} numbers out, and count them as well"
    return ""


def wrong_quantiles(info: SiteInfo) -> str:
    """Return what is wrong with the quantiles of columns whose blanks are filled by medians; empty if nothing is."""
    if "quantiles" not in info.sums:
        return ""
    quantiles, known = info.sums["quantiles"], info.sums["known"]
    if len(info.shape) != 1 or quantiles.shape != (len(known), len(LEVELS)) or known.shape != known.shape[:1]:
        return f"{shapes(info.sums)} do not fit inputs of shape {info.shape}"
    if (known < 0).any() or (known > info.rows + info.held_out).any():
        return f"quantiles of {int(known.max())} values, and it has {info.rows + info.held_out} rows"
    if not (quantiles.abs() <= LARGEST_VALUE).all() or (quantiles.diff(dim=1) < 0).any():
        return "the quantiles of a column do not increase"
    return ""
