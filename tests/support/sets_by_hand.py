"""The posterior of candidate sets in NumPy, row by row: a transcription that shares no code with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.posterior_by_hand import TAUS, Array, ByHand, softmax, unit


def chance_of(k: int, inside: bool, C: int, e: Array) -> float:
    """(28): the probability of a set of size k, but for the factor that all classes share."""
    return float((1 - e[k]) / k if inside else e[k] / max(1, C - k))


def weights(R: Array, e: Array, pi: Array, S: Any) -> Array:
    """(29) before it is normalised."""
    k, C = S.sum(1), S.shape[1]
    chances = {(size, inside): chance_of(size, inside, C, e) for size in {*k.tolist()} for inside in (True, False)}
    return np.array([[R[i, y] * pi[y] * chances[int(k[i]), bool(S[i, y])] for y in range(C)] for i in range(len(R))])


def again(Q: Array, S: Any, towards: Array) -> tuple[Array, Array]:
    """(30) or (32), and (31): `towards` is e of all sizes at the server, or e_k of all sites at a site."""
    n, C = Q.shape
    e = np.zeros(C + 1)
    for k in range(1, C):
        rows = [i for i in range(n) if S[i].sum() == k]
        missed = sum(Q[i, y] for i in rows for y in range(C) if not S[i, y])
        e[k] = (missed + 20 * towards[k]) / (len(rows) + 20)
    return e, (Q.sum(0) + 1) / (n + C)


def pooled(R: Array, S: Any, steps: int) -> tuple[Array, Array]:
    """(30) and (31) over all sites."""
    C = S.shape[1]
    e, pi = np.full(C + 1, 0.1), np.full(C, 1 / C)
    open_sets = [i for i in range(len(S)) if S[i].sum() < C]
    for _ in range(steps):
        Q = unit(weights(R, e, pi, S))
        missed = sum(Q[i, y] for i in open_sets for y in range(C) if not S[i, y])
        e, pi = again(Q, S, np.full(C + 1, (missed + 0.1) / (len(open_sets) + 1)))
    return e, pi


def at_site(R: Array, S: Any, e: Array, pi: Array, steps: int) -> tuple[Array, Array]:
    """(32) and (33): Q, and the log-likelihoods."""
    own, shares = e, pi
    for _ in range(steps):
        own, shares = again(unit(weights(R, own, shares, S)), S, e)
    found = weights(R, own, shares, S)
    return unit(found), np.log(found.sum(1) + 1e-12)


def whole(x: Array, S: Any, site: Any, fits: int) -> Array:
    """Return Q of all rows after so many fits."""
    by_hand = ByHand(x, S.argmax(1), site, S.shape[1])
    targets = S / S.sum(1, keepdims=True)  # (27)
    for _ in range(fits):
        logits, _ = by_hand.cross_fit(targets)
        found = []
        for tau in TAUS:
            p = softmax(logits / tau)
            R = p / (p.mean(0) + 1e-12)
            found.append((likelihood(R, S, site), tau))
        p = softmax(logits / max(found)[1])
        R = p / (p.mean(0) + 1e-12)
        Q = np.zeros_like(R)
        e, pi = pooled(R, S, 30)
        for k in range(site.max() + 1):
            Q[site == k] = at_site(R[site == k], S[site == k], e, pi, 30)[0]
        targets = unit(Q**2)
    return np.asarray(Q)


def likelihood(R: Array, S: Any, site: Any) -> float:
    """(17) for sets."""
    e, pi = pooled(R, S, 15)
    return float(sum(at_site(R[site == k], S[site == k], e, pi, 10)[1].sum() for k in range(site.max() + 1)))
