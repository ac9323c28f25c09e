"""The forces between class embeddings: the numbers of the specification, and every gradient against autograd."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from imperfed.algorithms.fedalc.correlations import WEIGHTS, Fixed, Pairs
from imperfed.core.network import Network
from imperfed.nn import embeddings
from imperfed.nn.embeddings import Spread, cosine_scores, gradient, mean_cosine

W = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], dtype=torch.float64)
EXAMPLE = torch.tensor([7, 7, 7, 3, 3, 9, 5, 5, 5, 5])
LABEL = torch.tensor([0, 1, 1, 1, 2, 0, 0, 1, 2, 3])
CO = torch.tensor([[3, 2, 1, 1, 0], [2, 3, 2, 1, 0], [1, 2, 2, 1, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0]])
"""Sets {0, 1}, {1, 2}, {0}, {0, 1, 2, 3} of five classes; one label is said twice."""


def near(actual: Tensor, expected: object, tolerance: float = 1e-6) -> None:
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance, check_dtype=False)


def random(C: int, D: int = 3, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(C, D, generator=draw, dtype=torch.float64)


def by_autograd(W: Tensor, h: Callable[[Tensor], Tensor]) -> Tensor:
    """The gradient of the sum over ordered pairs of h, a matrix of terms from a matrix of distances."""
    W = W.clone().requires_grad_()
    V = normalize(W)
    (g,) = torch.autograd.grad((h(1 - V @ V.T) * (1 - torch.eye(len(W)))).sum(), W)
    return g


@pytest.mark.parametrize(
    ("spread", "slope", "after"),
    [
        (
            Spread(0, 1.0, False, None),
            [[0, 1.92], [0, 0], [1.92, 0]],
            [[0.982062, -0.188556], [0.8, 0.6], [-0.188556, 0.982062]],
        ),
        (
            Spread(0, 0.5, False, None),
            [[0, 0.72], [0.24, -0.32], [0.32, 0]],
            [[0.997418, -0.071814], [0.775380, 0.631495], [-0.031984, 0.999488]],
        ),
        (
            Spread(1, 1.0, True, None),
            [[0, 0.48], [-0.096, 0.128], [0.64, 0]],
            [[0.998850, -0.047945], [0.809496, 0.587125], [-0.063869, 0.997958]],
        ),
    ],
    ids=["all pairs, nu 1", "all pairs, nu 0.5", "nearest, mined"],
)
def test_the_printed_numbers(spread: Spread, slope: list[list[float]], after: list[list[float]]):
    g = gradient(W, spread)
    near(g, slope)
    near(normalize(W - 0.1 * g), after)


def test_the_rows_need_not_have_length_one():
    scale = torch.tensor([[2.0], [0.5], [3.0]], dtype=torch.float64)
    near(gradient(scale * W, Spread(0, 1.0, False, None)), gradient(W, Spread(0, 1.0, False, None)) / scale)


def test_counts_of_pairs():
    pairs = Pairs.of(EXAMPLE, LABEL, 5)
    assert pairs.total == 4
    assert pairs.n.tolist() == [3, 3, 2, 1, 0]
    assert pairs.both(0, 5).tolist() == CO.tolist()
    assert pairs.both(1, 3).tolist() == CO[1:3].tolist()
    assert pairs.apart(0, 5).tolist() == (torch.tensor([[3], [3], [2], [1], [0]]) - CO).tolist()
    again = Pairs.from_tree(pairs.tree("co "), "co ")
    assert all(torch.equal(a, b) for a, b in zip(pairs.tree("").values(), again.tree("").values(), strict=True))


def test_weights_by_hand():
    pairs = Pairs.of(EXAMPLE, LABEL, 5)
    apart = np.array([[3], [3], [2], [1], [0]]) - CO.numpy()
    near(WEIGHTS["counts"](pairs, 0, 5), apart)
    near(WEIGHTS["sigma"](pairs, 0, 5), apart / 4)
    expected = 4 * apart / np.maximum(apart.sum(1, keepdims=True), 1)
    expected[4] = 1  # nobody holds class 4
    near(WEIGHTS["normalised"](pairs, 0, 5), expected)
    near(WEIGHTS["normalised"](pairs, 2, 4), expected[2:4])


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("block", [1, 10, 1 << 24])
@pytest.mark.parametrize("nu", [1.0, 0.6])
def test_weighted_spread_over_all_pairs(weights: str, block: int, nu: float, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embeddings, "BLOCK", block)  # one row a block, two rows, all
    pairs, w = Pairs.of(EXAMPLE, LABEL, 5), random(5)
    g = WEIGHTS[weights](pairs, 0, 5).double()
    spread = Spread(0, nu, False, lambda a, b: WEIGHTS[weights](pairs, a, b))
    near(gradient(w, spread), by_autograd(w, lambda d: g * (nu - d).clamp(min=0) ** 2), 1e-12)


def nearest(d: Tensor, K: int) -> Tensor:
    """1 where u' is among the K classes nearest to u."""
    d = d.detach() + torch.diag(torch.full((len(d),), 9.0))
    return torch.zeros_like(d).scatter(1, d.topk(K, largest=False).indices, 1.0)


@pytest.mark.parametrize("block", [1, 20, 1 << 24])
def test_neighbours_only(block: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embeddings, "BLOCK", block)
    pairs, w = Pairs.of(EXAMPLE, LABEL, 9), random(9)
    g = WEIGHTS["normalised"](pairs, 0, 9).double()
    weight = lambda a, b: WEIGHTS["normalised"](pairs, a, b)  # noqa: E731
    hinge = by_autograd(w, lambda d: g * nearest(d, 3) * (1 - d).clamp(min=0) ** 2)
    near(gradient(w, Spread(3, 1.0, False, weight)), hinge, 1e-12)
    eq7 = by_autograd(w, lambda d: -g * nearest(d, 3) * d**2)
    near(gradient(w, Spread(3, 1.0, True, weight)), eq7, 1e-12)


def test_the_margin_may_be_the_next_neighbours_distance():
    w = random(9)

    def h(d: Tensor) -> Tensor:
        nu = (d.detach() + torch.diag(torch.full((9,), 9.0))).sort(1).values[:, 3:4]
        return (nu - d).clamp(min=0) ** 2

    near(gradient(w, Spread(3, 0.0, False, None)), by_autograd(w, h), 1e-12)


@pytest.mark.parametrize("block", [1, 1 << 24])
def test_the_fixed_matrix_descends_the_mean_over_examples(block: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embeddings, "BLOCK", block)
    sets, w = [{0, 1}, {1, 2}, {0}, {0, 1, 2, 3}], random(5, seed=1).requires_grad_()
    V, alpha, beta, nu = normalize(w), 0.7, 1.3, 1.1
    total = torch.zeros((), dtype=torch.float64)
    for there in sets:  # Eq. 12 as it is printed
        for u in there:
            for v in set(range(5)) - {u}:
                d = 1 - V[u] @ V[v]
                total = total + (alpha * d**2 if v in there else beta * (nu - d).clamp(min=0) ** 2) / len(sets)
    (expected,) = torch.autograd.grad(total, w)
    near(gradient(w.detach(), Fixed(Pairs.of(EXAMPLE, LABEL, 5), alpha, beta, nu)), expected, 1e-6)


def test_collapse_is_a_mean_cosine_near_one():
    near(mean_cosine(W), (0.8 + 0.0 + 0.6) / 3)
    near(mean_cosine(3 * torch.ones(4, 2, dtype=torch.float64)), 1.0)
    assert mean_cosine(W[:1]) == 0


def test_scores_are_cosines():
    torch.manual_seed(0)
    network = cosine_scores(Network(nn.Linear(3, 2), nn.Linear(2, 4)))
    assert [name for name, _ in network.named_parameters()] == ["rep.weight", "rep.bias", "head.weight"]
    torch.testing.assert_close(network.head.weight.norm(dim=1), torch.ones(4))
    x = torch.randn(5, 3)
    network.head.weight.data *= 3
    expected = normalize(network.rep(x)) @ normalize(network.head.weight).T
    torch.testing.assert_close(network(x), expected)
    assert network(x).abs().max() <= 1 + 1e-6
