"""Class embeddings: unit rows of a matrix W, and the forces between them.

A regulariser is a sum, over ordered pairs of rows, of a function h of their distance d(a, b) = 1 - a.b. Its gradient
needs only -dh/dd, the force between two rows. It is computed in blocks of rows, so that C x C numbers are never in
memory at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from imperfed.core.network import Network

BLOCK = 1 << 24
"""The number of distances in a block: 64 MB."""

Force = Callable[[int, int, Tensor], Tensor]
"""From the rows a .. b - 1 and their distances [b - a, C] to all rows to -dh/dd, dense or sparse, 0 on the diagonal."""


class Unit(nn.Module):
    """A layer that scales vectors to length 1."""

    def forward(self, z: Tensor) -> Tensor:
        return normalize(z, dim=-1)


class ClassMatrix(nn.Linear):
    """Scores W z without bias; rows of W are normalised on use, whatever length is stored."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__(features, classes, bias=False)
        nn.init.normal_(self.weight)
        self.weight.data = normalize(self.weight.data)

    def forward(self, z: Tensor) -> Tensor:
        return linear(z, normalize(self.weight))


def cosine_scores(network: Network) -> Network:
    """Return the network with scores f(x) = W g(x), where g(x) and all rows of W have length 1 (Eq. 2)."""
    network.insert_before_head("unit", lambda p: Unit())
    network.head = ClassMatrix(network.head.in_features, network.head.out_features)
    return network


@dataclass(frozen=True)
class Spread:
    """h(d) = g max(0, nu - d)^2 over the K nearest classes of each class (Eqs. 6, 8, 10, 11), or -g d^2 (Eq. 7)."""

    neighbours: int  # K; 0: all other classes
    nu: float  # margin; 0: the distance to the (K + 1)-th nearest class
    mined: bool  # Eq. 7
    weight: Callable[[int, int], Tensor] | None  # g_uu' of the rows a .. b - 1; None: 1

    def __call__(self, a: int, b: int, d: Tensor) -> Tensor:
        g = d.new_ones(()).expand_as(d) if self.weight is None else self.weight(a, b)
        if not 0 < self.neighbours < d.shape[1] - 1:
            return without_self(g * self.gradient(d, self.nu or d.amax(1, keepdim=True)), a)
        near, at = without_self(d, a, float("inf")).topk(self.neighbours + 1, largest=False)
        nu_u = near[:, -1:] if self.nu == 0 else self.nu
        values = (g.gather(1, at) * self.gradient(near, nu_u))[:, :-1]  # only u' in N_K(u)
        row = torch.arange(b - a, device=d.device).repeat_interleave(self.neighbours)
        where = torch.stack([row, at[:, :-1].reshape(-1)])
        return torch.sparse_coo_tensor(where, values.reshape(-1), d.shape, check_invariants=False)

    def gradient(self, d: Tensor, nu: Tensor | float) -> Tensor:
        """Return -dh/dd for g = 1."""
        return 2 * d if self.mined else 2 * (nu - d).clamp(min=0)


def without_self(t: Tensor, a: int, value: float = 0.0) -> Tensor:
    """Return rows a, a + 1, ... of a square matrix with its diagonal entries replaced."""
    own = torch.arange(a, a + len(t), device=t.device)[:, None]
    return t.scatter(1, own, value)


@torch.no_grad()
def gradient(W: Tensor, force: Force) -> Tensor:
    """Return the gradient of sum_u sum_u' h(d(w_u, w_u')) at W, through the normalisation of its rows."""
    length: Tensor = W.norm(dim=1, keepdim=True).clamp(min=1e-12)
    V = W / length
    G = torch.zeros_like(V)
    size = max(1, BLOCK // len(V))
    for a in range(0, len(V), size):
        b = min(a + size, len(V))
        A = force(a, b, 1 - V[a:b] @ V.T)
        G[a:b] += A @ V  # d(w_u, w_u') falls as w_u moves towards w_u' ...
        G += A.T @ V[a:b]  # ... and as w_u' moves towards w_u
    return (G - (G * V).sum(1, keepdim=True) * V) / length


def mean_cosine(W: Tensor) -> Tensor:
    """Return the mean of w_u.w_u' over all pairs of distinct rows: near 1 where all classes have collapsed."""
    C, total = len(W), normalize(W).sum(0)
    return (total @ total - C) / max(C * (C - 1), 1)  # |sum of w_u|^2 = C + sum over ordered pairs
