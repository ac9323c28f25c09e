"""What a site cannot have found among its rows is refused; whatever its rows are like, what it has found is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.context import ServerView, SiteView
from imperfed.core.exchange import Updates
from imperfed.core.labels import Exact
from imperfed.repairs.posterior.axes import Axes, no_moments, no_second_moment
from imperfed.repairs.posterior.cross_fit import CrossFit, no_curvature

AXES, FIT = Axes("raw"), CrossFit("raw", 2)
CONTEXT = ServerView(classes=("a", "b"), sites=("one", "two"), trusted=None)
ROWS = (40, 60)


def rows_of(kind: str) -> Tensor:
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    if kind == "constant":
        x[:, 1] = 7.3
    if kind == "far from 0":
        x[:, 1] = 1.7e18 + 1e11 * x[:, 1]
    if kind == "one site alone varies":
        x[40:] = 3.0
    if kind == "cancels":  # the variance is lost in the square of the mean
        x[:, 1] = 1e9
        x[0, 1] += 64
    if kind == "tiny":
        x *= 1e-20
    return x


def exchange(number: int, x: Tensor) -> tuple[Tree, list[Tree]]:
    """Return the server's memory before one of the first three exchanges, and what both sites answer."""
    parts = x.split(ROWS)
    sites = [
        SiteView(k, part, Exact(torch.zeros(len(part), dtype=torch.int64), 2), {}, {}) for k, part in enumerate(parts)
    ]
    server: Tree = {}
    queries = (*AXES.exchanges(), FIT.opening())
    for query in queries[: number + 1]:
        for k, site in enumerate(sites):
            site.down.clear()
            site.down.update(query.send(server, k))
        answers = [query.respond(site) for site in sites]
        if query is queries[number]:
            break
        server = query.aggregate(server, Updates((0, 1), torch.tensor(ROWS).float(), {}, tuple(answers)), CONTEXT)
    return server, answers


DOUBTS: tuple[Callable[[Tree, Tree, int], str], ...] = (no_moments, no_second_moment, no_curvature)


@pytest.mark.parametrize("kind", ["usual", "constant", "far from 0", "one site alone varies", "cancels", "tiny"])
@pytest.mark.parametrize("number", range(3))
def test_what_a_site_has_found_is_never_doubted(number: int, kind: str) -> None:
    server, answers = exchange(number, rows_of(kind))
    assert [DOUBTS[number](server, answer, rows) for answer, rows in zip(answers, ROWS, strict=True)] == ["", ""]


def changed(name: str, place: tuple[int, ...], value: float, number: int, site: int = 0) -> str:
    """Return what is said of an answer one number of which is another."""
    server, answers = exchange(number, rows_of("usual"))
    tensor = answers[site][name].clone()
    tensor[place] = value
    return DOUBTS[number](server, answers[site] | {name: tensor}, ROWS[site])


@pytest.mark.parametrize(
    ("number", "name", "place", "value", "why"),
    [
        (0, "n", (), 41, "sums over 41 rows, of 40"),
        (0, "sum x", (0,), 100.0, "'sum x^2' is less than the square of 'sum x' allows"),
        (0, "sum x^2", (1,), -1.0, "'sum x^2' is less than the square of 'sum x' allows"),
        (1, "sum z z^T", (0, 0), 101.0, "'sum z z^T' has squares that add up to 101, which they cannot"),
        (1, "sum z z^T", (2, 2), -0.5, "'sum z z^T' has squares that add up to -0.5, which they cannot"),
        (1, "sum z z^T", (0, 1), 90.0, "'sum z z^T' has products larger than its squares allow"),
        (1, "sum z z^T", (1, 0), -90.0, "'sum z z^T' has products larger than its squares allow"),
        (2, "sum a a^T", (3, 3), 39.0, "'sum a a^T' is over 39 rows, of 40"),
        (2, "sum a a^T", (1, 1), -2.0, "'sum a a^T' has squares that add up to -2, which they cannot"),
        (2, "sum a a^T", (0, 3), 1e9, "'sum a a^T' has products larger than its squares allow"),
    ],
)
def test_what_no_rows_have_is_refused(number: int, name: str, place: tuple[int, ...], value: float, why: str) -> None:
    assert changed(name, place, value, number) == why
