"""Equations (2) to (7), by the numbers worked out for two small sets of rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from imperfed.repairs.fb_nll.spectra import energy, projections, relevance, similarity, spectrum

ONE = torch.tensor([[2, 0, 0], [0, 1, 0], [0, 0, 0.5], [2, 0, 0]], dtype=torch.float64)
TWO = torch.tensor([[2, 1, 0], [0, 1, 0], [0, 1, 1]], dtype=torch.float64)


def near(*numbers: float) -> object:
    return pytest.approx(numbers, abs=1e-6)


def test_eigenvalues_are_those_of_the_second_moment_not_centred() -> None:
    assert spectrum(ONE, 3)[0].tolist() == near(2, 0.25, 0.0625)  # Eq. 2
    assert spectrum(TWO, 3)[0].tolist() == near(1.881917, 0.666667, 0.118083)
    assert spectrum(TWO, 2)[0].tolist() == near(1.881917, 0.666667)


def test_energies_are_norms_of_s_v() -> None:
    V1, V2 = spectrum(ONE, 3)[1], spectrum(TWO, 3)[1]
    assert energy(ONE, V2).tolist() == near(1.538207, 1.164246, 0.587245)  # Eq. 3
    assert energy(TWO, V1).tolist() == near(1.490712, 1.247219, 0.471405)


@pytest.mark.parametrize(("M", "expected"), [(1, 0.780614), (2, 0.528543), (3, 0.366678)])
def test_similarity_of_two_sites(M: int, expected: float) -> None:
    (a, V1), (b, V2) = spectrum(ONE, M), spectrum(TWO, M)
    assert similarity(relevance(ONE, a, V2), relevance(TWO, b, V1)).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("rank", "first", "second"), [(1, 1.0, 1.530111), (2, 1.414214, 1.635412)])
def test_the_label_is_the_class_with_the_longest_projection(rank: int, first: float, second: float) -> None:
    V = torch.stack([spectrum(F, rank)[1] for F in (ONE, TWO)])
    norms = projections(torch.ones(1, 3, dtype=torch.float64), V)
    assert norms[0].tolist() == near(first, second)  # Eq. 7
    assert norms.argmax(1).tolist() == [1]


def test_a_site_is_like_itself_and_scale_changes_nothing() -> None:
    lam, V = spectrum(TWO, 3)
    assert relevance(TWO, lam, V).item() == pytest.approx(1, abs=1e-12)
    one = spectrum(ONE, 2)[1]
    larger = spectrum(7 * TWO, 2)
    assert relevance(7 * TWO, larger[0], one).item() == pytest.approx(relevance(TWO, lam[:2], one).item(), abs=1e-12)


def test_a_direction_that_is_missing_counts_as_the_floor() -> None:
    flat = torch.tensor([[1.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    lam, _ = spectrum(flat, 2)
    assert relevance(flat, lam, torch.eye(2, dtype=torch.float64)).item() == pytest.approx(1e-3)


def test_fewer_rows_than_features_give_the_same_spectrum() -> None:
    F = torch.randn(5, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lam, V = spectrum(F, 3)
    values, vectors = np.linalg.eigh(F.numpy().T @ F.numpy() / 5)
    assert lam.numpy() == pytest.approx(values[::-1][:3])
    assert np.abs(V.numpy().T @ vectors[:, ::-1][:, :3]) == pytest.approx(np.eye(3), abs=1e-9)


def test_centring_is_an_option() -> None:
    lam, _ = spectrum(TWO, 3, center=True)
    assert lam.sum().item() == pytest.approx(float(np.cov(TWO.numpy().T, bias=True).trace()))
    assert lam.sum() < spectrum(TWO, 3)[0].sum()
