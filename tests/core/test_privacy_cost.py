"""Epsilon of Gaussian noise against the closed form, against Rényi divergence, and by its own rules."""

from __future__ import annotations

from math import e, exp, log, sqrt
from statistics import NormalDist

import pytest

pytest.importorskip("dp_accounting")

from imperfed.core.privacy_cost import spent, spent_on

PHI = NormalDist().cdf
DELTA = 1e-5


@pytest.mark.parametrize(("noise", "releases"), [(1.0, 1), (1.0, 2), (12.0, 300), (4.0, 30), (0.8, 3)])
def test_epsilon_is_the_one_at_which_the_closed_form_gives_delta(noise: float, releases: int) -> None:
    """Balle and Wang, Thm. 8, at the sensitivity sqrt(releases) / noise of all releases together."""
    mu, epsilon = sqrt(releases) / noise, spent(noise, DELTA, releases)
    found = PHI(mu / 2 - epsilon / mu) - exp(epsilon) * PHI(-mu / 2 - epsilon / mu)
    assert found == pytest.approx(DELTA, rel=1e-4)


@pytest.mark.parametrize(("noise", "releases"), [(1.0, 2), (4.0, 30), (12.0, 150)])
def test_it_is_a_little_less_than_renyi_divergence_says(noise: float, releases: int) -> None:
    """Of order a: releases a / (2 noise^2), turned into (epsilon, delta) at the best of many orders."""
    orders = [1 + 0.01 * n for n in range(1, 20_000)]
    renyi = min(releases * a / (2 * noise**2) + log((a - 1) / a) - (log(DELTA) + log(a)) / (a - 1) for a in orders)
    assert 0.9 * renyi < spent(noise, DELTA, releases) < renyi


def test_releases_with_different_noise_add_up() -> None:
    assert spent_on([3.0, 4.0], DELTA) == pytest.approx(spent(12 / 5, DELTA), rel=1e-9)  # 1/9 + 1/16 = (5/12)^2
    assert spent_on([2.0] * 7, DELTA) == pytest.approx(spent(2.0, DELTA, 7), rel=1e-9)
    assert spent_on([], DELTA) == spent(1.0, DELTA, 0) == 0.0


def test_the_known_figure() -> None:
    assert spent(1.0, DELTA) == pytest.approx(4.377178, abs=1e-6)
    assert spent(1.0, 1 / e) < spent(1.0, DELTA)
