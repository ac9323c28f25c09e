"""Posterior repair in NumPy, all sites in one place: a transcription of the equations that shares no code with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import beta

Array = np.ndarray[Any, np.dtype[np.float64]]
TAUS = np.geomspace(0.4, 2.5, 12)
H = np.concatenate([[0.0], np.geomspace(0.05, 8, 40)])


def softmax(z: Array) -> Array:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def unit(rows: Array) -> Array:
    return rows / (rows.sum(-1, keepdims=True) + 1e-12)


def fits(A: Array, y: Array, b: Array, rho: float) -> Array:
    """(4) to (7); b [F, n]."""
    p1, C = A.shape[1], y.shape[1]
    lam = rho * b.sum(1).mean()
    Lam = np.diag([lam] * (p1 - 1) + [0.0])
    H = sum(0.5 * b[:, i].max() * np.outer(A[i], A[i]) for i in range(len(A))) + Lam + 1e-6 * np.eye(p1)
    found = []
    for weights in b:
        before, U = np.zeros((p1, C)), np.zeros((p1, C))
        for s in range(1, 51):
            gradient = A.T @ (weights[:, None] * (softmax(A @ U) - y)) + Lam @ U
            W = U - np.linalg.solve(H, gradient)
            U = W + (s - 1) / (s + 2) * (W - before)
            before = W
        found.append(W)
    return np.stack(found)


@dataclass
class ByHand:
    """Rows of all sites, in the order of the sites, and clean rows or none."""

    x: Array
    g: Any
    site: Any
    C: int
    clean_x: Array | None = None
    clean_y: Any = None

    def __post_init__(self) -> None:
        place = np.concatenate([np.arange((self.site == k).sum()) for k in range(self.site.max() + 1)])
        self.fold = place % 5
        mu = self.x.mean(0)
        sd = np.sqrt((self.x**2).mean(0) - mu**2) + 1e-6
        z = (self.x - mu) / sd
        values, vectors = np.linalg.eigh(z.T @ z / len(z))
        V = vectors[:, np.argsort(-values)[: min(200, z.shape[1])]]
        self.A = np.c_[z @ V, np.ones(len(z))]
        if self.clean_x is not None:
            self.clean_A = np.c_[(self.clean_x - mu) / sd @ V, np.ones(len(self.clean_x))]
            self.clean_fold = np.arange(len(self.clean_y)) % 5

    def cross_fit(self, targets: Array) -> tuple[Array, Array]:
        """Return the logits of the sites' rows and of the clean rows, each by the fit without its fold."""
        A, y, fold, weight = self.A, targets, self.fold, np.ones(len(self.A))
        if self.clean_x is not None:
            A, y = np.r_[A, self.clean_A], np.r_[y, np.eye(self.C)[self.clean_y]]
            fold, weight = np.r_[fold, self.clean_fold], np.r_[weight, np.full(len(self.clean_A), 2.0)]
        W = fits(A, y, np.stack([weight * (fold != f) for f in range(5)]), 0.03)
        logits = np.stack([A[i] @ W[fold[i]] for i in range(len(A))])
        return logits[: len(self.A)], logits[len(self.A) :]

    def pooled(self, R: Array, steps: int) -> tuple[Array, Array]:
        """(9) to (11)."""
        C, n = self.C, len(self.g)
        T, pi = np.full((C, C), 0.1 / (C - 1)), np.full(C, 1 / C)
        np.fill_diagonal(T, 0.9)
        for _ in range(steps):
            Q = unit(R * (pi[:, None] * T)[:, self.g].T)
            N = np.stack([Q[self.g == c].sum(0) for c in range(C)], 1)
            T, pi = unit(N + np.eye(C) + 0.01), (N.sum(1) + 1) / (n + C)
        return T, pi

    def at_sites(self, R: Array, T: Array, pi: Array, steps: int) -> tuple[Array, list[Array], Array]:
        """(12) to (15): Q, J of every site, and the log-likelihoods."""
        C, Q, Js, like = self.C, np.zeros_like(R), [], np.zeros(len(R))
        for k in range(self.site.max() + 1):
            rows = self.site == k
            g, Rk, J = self.g[rows], R[rows], pi[:, None] * T
            for _ in range(steps):
                q = unit(Rk * J[:, g].T)
                N = np.stack([q[g == c].sum(0) for c in range(C)], 1)
                J = ((N.sum(1) + 1) / (len(g) + C))[:, None] * unit(N + 5 * T)
            Q[rows], like[rows] = unit(Rk * J[:, g].T), np.log((Rk * J[:, g].T).sum(1) + 1e-12)
            Js.append(J)
        return Q, Js, like

    def estimate(self, logits: Array, tau: float) -> tuple[Array, list[Array], Array]:
        """(8) to (15) at one temperature: Q, J of every site, mean p."""
        p = softmax(logits / tau)
        R = p / (p.mean(0) + 1e-12)
        Q, Js, _ = self.at_sites(R, *self.pooled(R, 30), 30)
        return Q, Js, p.mean(0)

    def by_likelihood(self, logits: Array) -> float:
        """(17)."""
        scores = []
        for tau in TAUS:
            p = softmax(logits / tau)
            R = p / (p.mean(0) + 1e-12)
            scores.append(self.at_sites(R, *self.pooled(R, 15), 10)[2].mean())
        return float(TAUS[np.argmax(scores)])

    def by_clean_rows(self, logits: Array) -> float:
        """(16)."""
        own = np.arange(len(self.clean_y)), self.clean_y
        return float(TAUS[np.argmax([np.log(softmax(logits / tau)[own] + 1e-12).mean() for tau in TAUS])])

    def without(self) -> tuple[Array, list[Array], Any]:
        """B.5: Q, J of every site, and the labels after."""
        targets = np.eye(self.C)[self.g]
        for _ in range(3):
            logits, _ = self.cross_fit(targets)
            Q, Js, _ = self.estimate(logits, self.by_likelihood(logits))
            targets = unit(Q**2)
        lead, after = leads(Q, self.g), self.g.copy()
        for k in range(len(Js)):
            rows = self.site == k
            nu = (1 - Q[rows, self.g[rows]]).mean()
            h = np.inf if nu < 0.03 else 2 * max(0, 1 - nu / 0.2)
            changed = rows & (lead > h)
            after[changed] = Q[changed].argmax(1)
        return Q, Js, after

    def with_clean(self) -> tuple[Array, list[Array], Any]:
        """B.4: Q, J of every site, and the labels after."""
        y = np.eye(self.C)[self.clean_y]
        b = np.stack([*(1.0 * (self.clean_fold != f) for f in range(5)), np.ones(len(y))])
        W = fits(self.clean_A, y, b, 0.5)
        own = np.stack([a @ W[f] for a, f in zip(self.clean_A, self.clean_fold, strict=True)])
        tau = self.by_clean_rows(own)
        Q, Js, mean = self.estimate(self.A @ W[5], tau)
        for _ in range(2):
            logits, own = self.cross_fit(Q)
            tau = self.by_clean_rows(own)
            Q, Js, mean = self.estimate(logits, tau)
        R = softmax(own / tau) / (mean + 1e-12)
        lead, after = leads(Q, self.g), self.g.copy()
        sizes = np.bincount(self.site)
        nets = [net(lead[self.site == k], J, R, self.clean_y) for k, J in enumerate(Js)]
        best = int(np.argmax(sum(n * one for n, one in zip(sizes, nets, strict=True))))
        for k, one in enumerate(nets):
            changed = (self.site == k) & (lead > H[best]) & (one[best] > 0)
            after[changed] = Q[changed].argmax(1)
        return Q, Js, after


def leads(Q: Array, g: Any) -> Array:
    """(18)."""
    return np.asarray(np.log(Q.max(1) + 1e-12) - np.log(Q[np.arange(len(g)), g] + 1e-12))


def net(lead: Array, J: Array, R: Array, y: Any) -> Array:
    """(19) to (23)."""
    right = np.diag(J)
    v = np.array([right[c] / (y == c).sum() for c in y])
    v /= v.sum()
    e = 1 / (v**2).sum()
    own = leads(unit(R * J[:, y].T), y)
    found = []
    for h in H:
        d = (v * (own > h)).sum()
        up = beta.ppf(0.9, d * e + 1, max(e * (1 - d), 1e-9)) * right.sum()
        ch = (lead > h).mean()
        D = min(up, ch)
        found.append(0.85 * (ch - D) - D)
    return np.array(found)
