"""SLEEC in the numbers of a worked example. Embeddings are compared by their inner products: a rotation is free."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from benchmarks import positives_table, sleec
from benchmarks.sleec import SLEEC, embed, inner, pairs, predict, project, regress, root, scores_of

X = csr_matrix(np.array([[1.0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 1, 1], [1, 1, 0]]))
Y = csr_matrix(np.array([[1.0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 0], [1, 0, 1, 0]]))
HOW = SLEEC(L=2, nbar=2, steps=50)
G = (Y @ Y.T).toarray()


def gram(steps: int) -> tuple[np.ndarray, float]:
    """M after so many steps, and the norm of what is left on Omega."""
    omega = pairs(Y, 2)
    Z = project(Y, omega, replace(HOW, steps=steps))
    return Z @ Z.T, float(np.linalg.norm(omega.toarray() * (G - Z @ Z.T)))


def test_which_pairs_are_observed() -> None:
    rows = ["".join(str(int(v)) for v in row) for row in pairs(Y, 2).toarray()]
    assert rows == ["11001", "11001", "00111", "00111", "11111"]


def test_the_completion() -> None:
    M, left = gram(1)
    assert left == pytest.approx(0.745179, abs=1e-6)
    assert M[0] == pytest.approx([1.724564, 1.182098, -0.169863, 0.011277, 1.193375], abs=1e-6)
    M, left = gram(50)
    assert left == pytest.approx(0.376741, abs=1e-6)
    assert M[0] == pytest.approx([1.972956, 1.074892, -0.999413, 0.005163, 0.972012], abs=1e-5)


@pytest.mark.parametrize(
    ("query", "far", "scores"),
    [
        ([1, 0, 0.8], [0.009456, 0.151298, 3.866952, 2.196650, 2.099735], [1, 1 / 3, 1 / 3, 0]),
        ([0, 1, 0.3], [3.678645, 2.055624, 0.021276, 0.115838, 0.730766], [1 / 3, 0, 1, 1 / 3]),
    ],
)
def test_prediction_from_neighbours(query: list[float], far: list[float], scores: list[float]) -> None:
    cluster = embed(X, Y, HOW)
    assert np.diag(cluster.E @ cluster.E.T) == pytest.approx(
        [1.873093, 0.923459, 1.296254, 0.717429, 1.946539], abs=1e-5
    )
    q = csr_matrix(np.array([query]))
    assert ((q @ cluster.V - cluster.E) ** 2).sum(1) == pytest.approx(far, abs=1e-5)
    assert scores_of(cluster, q, 3)[0] == pytest.approx(scores, abs=1e-6)
    assert predict(X, Y, q, replace(HOW, neighbours=3, learners=2))[0] == pytest.approx(scores, abs=1e-6)


def test_large_clusters_are_decomposed_without_forming_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    Z, R = draw.normal(size=(30, 4)), draw.normal(size=(30, 30))
    dense = root(Z, csr_matrix(R + R.T), 3)
    monkeypatch.setattr(sleec, "DENSE", 0)
    assert root(Z, csr_matrix(R + R.T), 3) @ root(Z, csr_matrix(R + R.T), 3).T == pytest.approx(dense @ dense.T)
    assert inner(Z, np.array([0, 3]), np.array([1, 3])) == pytest.approx([Z[0] @ Z[1], Z[3] @ Z[3]])
    assert regress(X, np.ones((5, 1)), 1e6) == pytest.approx(np.zeros((3, 1)), abs=1e-5)


def test_a_run_is_kept_as_a_line_of_the_tables(tmp_path: Path) -> None:
    out = tmp_path / "positives.jsonl"
    rival = {"data": "tiny", "line": "FedALC", "settings": {"lam": 10, "lr_server": 0.01}, "seed": 0, "stops": [25]}
    figures = {"p@1": 0.5, "p@3": 0.4, "p@5": 0.3}
    positives_table.append(out, rival | {"task": "", "figures": {"25": figures | {"map": 0.2}}})
    sleec.keep(out, "tiny", 0, HOW, {"p@1": 0.654321, "p@3": 0.4, "p@5": 0.3})
    first, second = positives_table.table(list(positives_table.read(out)), "tiny").splitlines()[2:]
    assert first == f"| {sleec.LINE} | 65.4 | 40.0 | 30.0 |  |  | 1 |  |"
    assert second.startswith("| FedALC | 50.0 |")
