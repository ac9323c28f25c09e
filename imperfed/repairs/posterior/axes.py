"""The coordinates in which all rows are described: standardised features along their leading directions, Eqs. 1-3.

    exchange    a site sends (sums over its rows)    the server sends
    moments     n, sum x, sum x^2                    nothing
    directions  sum z z^T                            mu, sd

All sums are float64: they run over all rows of a federation, and mean x^2 - mu^2 cancels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.context import ServerView, SiteView
from imperfed.core.exchange import Query, Updates
from imperfed.repairs.features import features, phi

MOST = 200
"""The largest number of directions, p."""
TINY = 1e-6
"""Added to every standard deviation, since a feature may be constant."""
ROUNDING = 1e-3
"""By how much sums of single-precision features may be off, as a share."""
ROWS = 8192
"""Rows that are standardised or multiplied at once."""


@dataclass(frozen=True)
class Axes:
    """The first two exchanges: the server learns how to standardise features, and their leading directions."""

    features: str

    def exchanges(self) -> tuple[Query, ...]:
        """Return its exchanges."""
        return (
            Query("moments", self.scale, respond=self.moments, doubt=no_moments),
            Query("directions", self.turn, self.send_scale, respond=self.second_moment, doubt=no_second_moment),
        )

    # -- a site ---------------------------------------------------------------------------------------------------

    def moments(self, site: SiteView) -> Tree:
        """Return the number of rows, and the sums of features and of their squares."""
        F = phi(self.features, site)
        return {"n": torch.tensor(len(F)), "sum x": F.sum(0), "sum x^2": F.square().sum(0)}

    def second_moment(self, site: SiteView) -> Tree:
        """Return the sum of z z^T, and keep what standardises the rows."""
        site.memory["mu"], site.memory["sd"] = site.down["mu"], site.down["sd"]
        parts = phi(self.features, site).split(ROWS)
        return {"sum z z^T": sum_of_squares(standardised(F, site.memory) for F in parts)}

    # -- the server -----------------------------------------------------------------------------------------------

    def init_server(self, context: ServerView) -> Tree:
        """Return the features of the server's clean rows, and their classes."""
        assert context.trusted is not None
        return {"F": features(self.features, context.trusted.x), "y": context.trusted.labels.values}

    def scale(self, server: Tree, updates: Updates, context: ServerView) -> Tree:
        """Return mu and sd of all sites' rows, Eq. 1."""
        n = total(updates, "n").double()
        mu = total(updates, "sum x") / n
        sd = (total(updates, "sum x^2") / n - mu.square()).clamp(min=0).sqrt() + TINY
        return server | {"n": n, "mu": mu, "sd": sd}

    def send_scale(self, server: Tree, site: int) -> Tree:
        """Return what standardises features."""
        return {"mu": server["mu"], "sd": server["sd"]}

    def turn(self, server: Tree, updates: Updates, context: ServerView) -> Tree:
        """Return the leading eigenvectors of mean z z^T, Eq. 2."""
        _, vectors = torch.linalg.eigh(total(updates, "sum z z^T") / server["n"])
        return server | {"V": vectors[:, -MOST:].contiguous()}


def no_moments(server: Tree, answer: Tree, rows: int) -> str:
    """Return why these cannot be sums over the rows of a site: n is known, and n sum x^2 >= (sum x)^2."""
    n, first, second = (answer[name].double() for name in ("n", "sum x", "sum x^2"))
    if n != rows:
        return f"sums over {float(n):g} rows, of {rows}"
    if bool((second < first.square() / rows * (1 - ROUNDING) - TINY).any()):
        return "'sum x^2' is less than the square of 'sum x' allows"
    return ""


def no_second_moment(server: Tree, answer: Tree, rows: int) -> str:
    """Return why this cannot be sum z z^T: z^2 of all sites' rows adds up to n, and of one site to no more.

    Where sd is tiny beside mu, mean x^2 - mu^2 has cancelled, and z^2 says nothing.
    """
    exact = server["sd"] > TINY * server["mu"].abs()
    return no_squares("sum z z^T", answer, torch.where(exact, server["n"], torch.inf))


def no_squares(name: str, answer: Tree, most: Tensor) -> str:
    """Return why this cannot be a sum of r r^T, whose squares are these at the most."""
    diagonal = answer[name].diagonal()
    wrong = (diagonal < 0) | (diagonal > most * (1 + ROUNDING) + TINY)
    if bool(wrong.any()):
        return f"{name!r} has squares that add up to {float(diagonal[wrong][0]):g}, which they cannot"
    if bool((answer[name].abs() > (diagonal[:, None] * diagonal).sqrt() * (1 + ROUNDING) + TINY).any()):
        return f"{name!r} has products larger than its squares allow"
    return ""


def total(updates: Updates, name: str) -> Tensor:
    """Return the sum of what all sites sent under a name."""
    return torch.stack([answer[name] for answer in updates.parts]).sum(0)


def standardised(F: Tensor, scale: Tree) -> Tensor:
    """Return z = (x - mu) / sd of every row, Eq. 1."""
    return (F - scale["mu"]) / scale["sd"]


def coordinates(F: Tensor, scale: Tree, V: Tensor) -> Tensor:
    """Return a = (V^T z, 1) of every row, Eq. 3."""
    return torch.cat([standardised(F, scale) @ V, F.new_ones(len(F), 1)], 1)


def sum_of_squares(parts: Iterable[Tensor]) -> Tensor:
    """Return the sum of r r^T over the rows r of all parts."""
    products = (part.T @ part for part in parts)
    return reduce(Tensor.add_, products)
