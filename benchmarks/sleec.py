"""SLEEC on all rows in one place, a reference beside FedALC: `python -m benchmarks.sleec --data bibtex --seeds 0,1,2`.

Bhatia, Jain, Kar, Varma, Jain, "Sparse local embeddings for extreme multi-label classification", NIPS 2015. FedALC's
tables call it an oracle: it sees which classes an example does not have. It is no algorithm of the catalogue, because
it predicts from the labels of the training rows themselves, which may leave no site. With `--out` its figures become a
line beside those of `benchmarks.positives`.

Source: the title and abstract were read, the equations are from memory, unverified, and one public port was compared;
the defaults are that port's for Bibtex.

    symbol     where it lives
    X, Y       rows of length 1, and their classes
    G          Y Y^T, never formed
    Omega      pairs (i, j): j among the nbar largest G_i., or i among those of j, and i = j
    Z          an n x L root of M, which completes G on Omega
    V          the regressor: z = V x
    E          X V^T, in which neighbours are looked for

Departs from the paper in: V minimises |Z - X V^T|^2 + lam |V|^2, without the term mu |X V^T|_1 that makes embeddings
sparse.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_matrix, identity
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.cluster import KMeans

from benchmarks import positives_table as tables
from benchmarks.positives import SPLIT
from imperfed.data.federate import federate
from imperfed.data.labelling import LabelConfig
from imperfed.data.sources import load
from imperfed.data.sparse import width
from imperfed.evaluation.model_figures import precision_at

Real = npt.NDArray[np.float64]
CLUSTER = 6000
"""The most rows of a cluster, on average."""
DENSE = 400
"""The number of rows up to which all eigenvalues are computed."""
LINE = "SLEEC, all rows in one place"
"""Its line in the tables."""


@dataclass(frozen=True)
class SLEEC:
    """The settings."""

    L: int = 100  # dimension of the embedding
    nbar: int = 250  # neighbours whose inner products are kept
    steps: int = 50  # of singular value projection
    step: float = 1.0  # its step size
    lam: float = 0.1  # ridge
    neighbours: int = 25  # rows whose labels are averaged
    learners: int = 1  # members of the ensemble, which differ in their clusters


@dataclass(frozen=True)
class Cluster:
    """One cluster's regressor, and its rows in embedded form with their classes."""

    V: Real
    E: Real
    Y: csr_matrix


def pairs(Y: csr_matrix, nbar: int) -> csr_matrix:
    """Return Omega, 1 where a pair is observed: ties go to the lower row."""
    n = Y.shape[0]
    mask = identity(n, format="lil")
    for i in range(n):
        g = np.asarray((Y @ Y[i].T).todense()).ravel()
        g[i] = -1
        mask[i, np.argsort(-g, kind="stable")[: min(nbar, n - 1)]] = 1
    return csr_matrix(((mask + mask.T) > 0).astype(np.float64))


def project(Y: csr_matrix, omega: csr_matrix, how: SLEEC) -> Real:
    """Return Z after `steps` of M <- P_L(M + step P_Omega(G - M)), begun at M = 0."""
    i, j = omega.nonzero()
    G = np.asarray(Y[i].multiply(Y[j]).sum(1)).ravel()
    Z = np.zeros((Y.shape[0], 1))
    for _ in range(how.steps):
        R = csr_matrix((how.step * (G - inner(Z, i, j)), (i, j)), omega.shape)
        Z = root(Z, R, how.L)
    return Z


def inner(Z: Real, i: npt.NDArray[Any], j: npt.NDArray[Any]) -> Real:
    """Return the inner products of these pairs of rows."""
    parts = np.array_split(np.arange(len(i)), 1 + len(i) * Z.shape[1] // 10**7)
    return np.concatenate([np.einsum("pl,pl->p", Z[i[part]], Z[j[part]]) for part in parts])


def root(Z: Real, R: csr_matrix, L: int) -> Real:
    """Return U sqrt(l) for the L largest eigenvalues l of Z Z^T + R, those below 0 counting as 0."""
    n = len(Z)
    if n <= max(DENSE, 2 * L):
        values, U = np.linalg.eigh(Z @ Z.T + R.toarray())
        values, U = values[-L:], U[:, -L:]
    else:
        whole = LinearOperator((n, n), matvec=lambda v: Z @ (Z.T @ v) + R @ v, dtype=np.float64)
        values, U = eigsh(whole, L, which="LA", v0=np.ones(n))
    root: Real = U * np.sqrt(np.clip(values, 0, None))
    return root


def regress(X: csr_matrix, Z: Real, lam: float) -> Real:
    """Return V^T = (X^T X + lam I)^-1 X^T Z, [D, L]."""
    gram = (X.T @ X).toarray() + lam * np.eye(X.shape[1])
    V: Real = np.linalg.solve(gram, X.T @ Z)
    return V


def scores_of(cluster: Cluster, X: csr_matrix, neighbours: int) -> Real:
    """Return for every row the mean of its nearest rows' classes."""
    Q = X @ cluster.V
    far = (Q**2).sum(1)[:, None] - 2 * Q @ cluster.E.T + (cluster.E**2).sum(1)
    near = np.argsort(far, axis=1, kind="stable")[:, :neighbours]
    which = csr_matrix((np.ones(near.size), near.ravel(), np.arange(len(near) + 1) * near.shape[1]), far.shape)
    return (which @ cluster.Y).toarray() / near.shape[1]


def embed(X: csr_matrix, Y: csr_matrix, how: SLEEC) -> Cluster:
    """Return a cluster's regressor and its embedded rows."""
    V = regress(X, project(Y, pairs(Y, how.nbar), how), how.lam)
    return Cluster(V, X @ V, Y)


def predict(X: csr_matrix, Y: csr_matrix, queries: csr_matrix, how: SLEEC) -> Real:
    """Return the scores of all classes for these rows, the mean over the learners."""
    total = np.zeros((queries.shape[0], Y.shape[1]))
    for learner in range(how.learners):
        clusters = KMeans(-(-X.shape[0] // CLUSTER), random_state=learner, n_init=1).fit(X)
        own, asked = clusters.labels_, clusters.predict(queries)
        for q in np.unique(asked):
            cluster = embed(X[own == q], Y[own == q], how)
            total[asked == q] += scores_of(cluster, queries[asked == q], how.neighbours)
    return total / how.learners


def rows_of(x: torch.Tensor, features: int) -> csr_matrix:
    """Return packed sparse rows as a matrix of rows of length 1."""
    at, values = x[:, 0].long().numpy(), x[:, 1].double().numpy()
    row = np.arange(len(x)).repeat(x.shape[2])
    whole = csr_matrix((values.ravel(), (row, at.ravel())), (len(x), features + 1))[:, :features]
    length = np.sqrt(np.asarray(whole.multiply(whole).sum(1)).ravel())
    return csr_matrix(whole.multiply(1 / np.where(length > 0, length, 1)[:, None]))


def run(name: str, seed: int, how: SLEEC) -> dict[str, float]:
    """Return P@1, 3 and 5 on the test rows that the other methods of `benchmarks.positives` have with this seed."""
    data = federate(load(name), SPLIT, LabelConfig(), seed)
    fed, oracle = data.federation, data.oracle
    features = width(fed.x)
    at = torch.arange(len(fed.labels)) if fed.at is None else fed.at
    used, example = at.unique(return_inverse=True)
    cells = (example.numpy(), fed.labels.values.numpy())
    Y = csr_matrix((np.ones(len(at)), cells), (len(used), len(fed.classes)))
    assert oracle.common_x is not None
    assert oracle.common_y is not None
    scores = predict(rows_of(fed.x[used], features), Y, rows_of(oracle.common_x, features), how)
    return {f"p@{k}": precision_at(k)(torch.from_numpy(scores), oracle.common_y) for k in (1, 3, 5)}


def keep(out: Path, name: str, seed: int, how: SLEEC, figures: dict[str, float]) -> None:
    """Append a run to the file of `benchmarks.positives`, at the stops of its other lines: SLEEC has no rounds."""
    stops = next((record["stops"] for record in tables.read(out) if record["data"] == name), [0])
    told = {"data": name, "line": LINE, "settings": {}, "how": asdict(how), "seed": seed, "stops": stops}
    found = {key: round(value, 5) for key, value in figures.items()}
    task = json.dumps(told, sort_keys=True)
    tables.append(out, told | {"task": task, "device": "cpu", "figures": {str(stop): found for stop in stops}})


def main() -> None:
    """Print a line per dataset and seed."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--data", default="bibtex")
    words.add_argument("--seeds", default="0")
    words.add_argument("--nbar", type=int, default=SLEEC.nbar)
    words.add_argument("--dimension", type=int, default=SLEEC.L)
    words.add_argument("--steps", type=int, default=SLEEC.steps)
    words.add_argument("--out", type=Path, help="the file of benchmarks.positives, to which lines are added")
    asked = words.parse_args()
    how = SLEEC(L=asked.dimension, nbar=asked.nbar, steps=asked.steps)
    for name in asked.data.split(","):
        for seed in map(int, asked.seeds.split(",")):
            found = run(name, seed, how)
            print(name, f"seed {seed}", *(f"{key} {100 * value:.2f}" for key, value in found.items()), flush=True)
            if asked.out:
                keep(asked.out, name, seed, how, found)


if __name__ == "__main__":
    main()
