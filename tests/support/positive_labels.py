"""A federation of one label a site whose examples sit at several, and the methods on it written out in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from imperfed.core.algorithm import Algorithm
from imperfed.core.federation import Federation
from imperfed.core.labels import Positive
from imperfed.core.network import Network
from imperfed.data.oracle import Oracle
from imperfed.engine.local_training import Local
from imperfed.testing.toy import Watched, engine

SETS = ((0,), (0, 1), (1, 2), (0, 1, 2), (2,), (3,), (0, 3), (0, 2))
"""The labels of each example; label 3 is held by two sites below."""
HELD = ((0, (0, 1, 3, 6, 7)), (1, (1, 2, 3)), (2, (2, 3, 4, 7)), (3, (5,)), (3, (6,)))
"""The label of each site, and its examples."""
C, D = 4, 3
X = np.random.default_rng(5).normal(size=(len(SETS), 5))
ONE_STEP = Local(steps=1, batch=64, lr=9.0, momentum=0.9)  # neither lr nor momentum is used


def scene() -> tuple[Federation, Oracle]:
    """Five sites of unequal size."""
    at = torch.tensor([e for _, rows in HELD for e in rows])
    y = torch.tensor([label for label, rows in HELD for _ in rows])
    starts = tuple(sum(len(rows) for _, rows in HELD[:k]) for k in range(len(HELD) + 1))
    names, ids = tuple(f"site{k}" for k in range(len(HELD))), tuple(map(str, range(len(at))))
    x = torch.tensor(X, dtype=torch.get_default_dtype())
    federation = Federation("p", x, Positive(y, C), starts, names, tuple("abcd"), ids, x[:0], at=at).check()
    tests = (x[:2],) * len(HELD), (torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0]], dtype=torch.int8),) * len(HELD)
    return federation, Oracle(None, *tests)


def linear() -> Network:
    """g(x) = A x / |A x|."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return Network(nn.Linear(5, D, bias=False), nn.Linear(D, C))


def run(algorithm: Algorithm, local: Local = ONE_STEP, **rounds: Any) -> Watched:
    """Three rounds in which four of the five sites take part."""
    how = {"rounds": 3, "participation": 0.8} | rounds
    return engine(algorithm, algorithm.objective, scene(), local, linear(), **how)


def split(e: Watched) -> tuple[np.ndarray, np.ndarray]:
    """A and W of the server's model."""
    view, w = e.population.spec.layout.view, e.state.server["w"]
    return view(w, "rep.weight").numpy().copy(), view(w, "head.weight").numpy().copy()


def unit(a: np.ndarray) -> np.ndarray:
    return a / np.linalg.norm(a, axis=-1, keepdims=True)


@dataclass
class Hand:
    """Algorithm 1 as it is printed, float64, a client at a time."""

    A: np.ndarray
    W: np.ndarray
    lr_theta: float
    lr_w: float
    by_size: bool = True
    server: Callable[[np.ndarray], np.ndarray] = field(default=lambda W: np.zeros_like(W))
    """lambda eta times the gradient of reg."""

    def client(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """One step on the mean positive loss over (theta, w_y)."""
        label, rows = HELD[k]
        w, dA, dw = self.W[label], np.zeros_like(self.A), np.zeros(D)
        for e in rows:
            z = self.A @ X[e]
            g = unit(z)
            s = g @ w
            slope = -2 * max(0.0, 0.9 - s) / len(rows)
            dA += slope * np.outer((w - s * g) / np.linalg.norm(z), X[e])
            dw += slope * (g - s * w)
        return self.A - self.lr_theta * dA, w - self.lr_w * dw

    def round(self, who: tuple[int, ...]) -> None:
        clients = {k: self.client(k) for k in who}
        n = np.array([len(HELD[k][1]) for k in who], dtype=np.float64)
        p = n / n.sum() if self.by_size else np.full(len(who), 1 / len(who))
        self.A = sum(share * clients[k][0] for share, k in zip(p, who, strict=True))
        W = self.W.copy()
        for label in {HELD[k][0] for k in who}:
            mine = [k for k in who if HELD[k][0] == label]
            sizes = np.array([len(HELD[k][1]) for k in mine], dtype=np.float64)
            W[label] = unit(sum(s / sizes.sum() * clients[k][1] for s, k in zip(sizes, mine, strict=True)))
        self.W = unit(W - self.server(W))


def spread(W: np.ndarray, h: Callable[[float, int, int], float], K: int = C - 1) -> np.ndarray:
    """The gradient of sum_u sum_{u' in N_K(u)} h by central differences through the normalisation."""
    V = unit(W)
    d = 1 - V @ V.T + np.diag(np.full(len(W), 9.0))
    near = {u: np.argsort(d[u])[:K] for u in range(len(W))}

    def value(M: np.ndarray) -> float:
        U = unit(M)
        return sum(h(1 - U[u] @ U[v], u, v) for u in near for v in near[u])

    G, step = np.zeros_like(W), 1e-6
    for i in np.ndindex(*W.shape):
        E = np.zeros_like(W)
        E[i] = step
        G[i] = (value(W + E) - value(W - E)) / (2 * step)
    return G


def apart() -> np.ndarray:
    """n sigma_uu' of Eq. 9, counted over the examples."""
    return np.array([[sum(u in s and v not in s for s in SETS) for v in range(C)] for u in range(C)], dtype=np.float64)
