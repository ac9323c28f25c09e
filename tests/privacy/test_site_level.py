"""privacy=site: what is clipped, how much noise there is, where it comes from, and what it is counted as."""

from __future__ import annotations

import hashlib
import math
import sys

import pytest
import torch

from imperfed.algorithms.fedavg import FedAvg
from imperfed.core.errors import UsageError
from imperfed.privacy.keyed_noise import gaussian
from imperfed.privacy.site_level import SiteLevel

C, SIGMA = 0.5, 3.0
MECHANISM = SiteLevel(clip=C, noise=SIGMA)
SENT = torch.tensor([1.0, -2.0, 0.5])


def noiseless(w: torch.Tensor) -> torch.Tensor:
    """What the site sends without its noise."""
    return MECHANISM.protect(SENT, w, b"key") - SIGMA * C * gaussian(b"key", len(w)).float()


def test_a_long_update_is_shortened_to_the_bound_in_its_own_direction() -> None:
    u = torch.tensor([3.0, 0.0, -4.0])
    assert noiseless(SENT + u).tolist() == pytest.approx((SENT + C * u / 5).tolist(), abs=1e-6)


@pytest.mark.parametrize("u", [[0.3, 0.0, -0.4], [0.03, 0.0, 0.0], [0.0, 0.0, 0.0]])
def test_a_short_update_stays_as_it_is(u: list[float]) -> None:
    assert noiseless(SENT + torch.tensor(u)).tolist() == pytest.approx((SENT + torch.tensor(u)).tolist(), abs=1e-6)


def test_the_noise_counts_as_what_it_is_of_the_most_that_rows_can_change() -> None:
    """Any two sets of rows, opposite in the worst case, against the measured standard deviation of the noise."""
    one, other = (MECHANISM.protect(SENT, SENT + s * torch.tensor([9.0, 0, 0]), b"key") for s in (1, -1))
    furthest = float(torch.linalg.vector_norm(one - other))
    zeros = torch.zeros(200_000)
    deviation = float(MECHANISM.protect(zeros, zeros, b"key").std())
    assert deviation / furthest == pytest.approx(MECHANISM.multiplier, rel=0.01)
    assert MECHANISM.epsilon(2) == pytest.approx(SiteLevel(clip=9.0, noise=SIGMA / 2**0.5).epsilon(1), rel=1e-9)


def test_what_is_not_a_number_stays_to_be_refused() -> None:
    assert not MECHANISM.protect(SENT, torch.tensor([1.0, float("nan"), 0.0]), b"key").isfinite().all()
    assert not MECHANISM.protect(SENT, torch.tensor([1.0, float("inf"), 0.0]), b"key").isfinite().all()


# -- noise -------------------------------------------------------------------------------------------------------------


def test_the_noise_is_standard_normal_and_independent_of_that_of_another_key() -> None:
    a, b = gaussian(b"a", 100_001), gaussian(b"b", 100_001)
    assert a.dtype == torch.float64
    for z in (a, b):
        assert abs(float(z.mean())) < 0.015
        assert float(z.var()) == pytest.approx(1, abs=0.02)
        assert float(z.pow(4).mean()) == pytest.approx(3, abs=0.15)
        assert float((z.abs() > 1.959964).double().mean()) == pytest.approx(0.05, abs=0.004)
    halves = a[:50_000], a[50_001:100_001]  # cosines and sines of the same angles
    for x, y in ((a, b), halves, (a[1:], a[:-1])):
        assert abs(float((x * y).mean())) < 0.015
    assert torch.equal(gaussian(b"a", 7), gaussian(b"a", 7))
    assert len(gaussian(b"a", 0)) == 0


@pytest.mark.parametrize("count", [1, 4, 7])
def test_the_noise_is_box_mullers_of_the_stream_of_shake_256(count: int) -> None:
    """Number by number: a site that is asked again must answer with the same noise, also after an update."""
    pairs = (count + 1) // 2
    stream = hashlib.shake_256(b"key").digest(16 * pairs)
    words = [int.from_bytes(stream[i : i + 8], "little") % 2**53 for i in range(0, len(stream), 8)]
    u = [(word + 0.5) / 2**53 for word in words]
    radius = [math.sqrt(-2 * math.log(one)) for one in u[:pairs]]
    both = [r * f(2 * math.pi * a) for f in (math.cos, math.sin) for r, a in zip(radius, u[pairs:], strict=True)]
    assert gaussian(b"key", count).tolist() == pytest.approx(both[:count], rel=1e-12)


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"clip": 0.0}, {"noise": 0.0}, {"delta": 0.0}, {"delta": 1.0}, {"epsilon_max": -1}])
def test_wrong_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"privacy.{next(iter(wrong))}"):
        SiteLevel(**wrong)


def test_a_budget_that_allows_no_round_is_refused() -> None:
    cost = MECHANISM.epsilon(1)
    with pytest.raises(UsageError, match=f"one round costs epsilon {cost:.3g}, more than privacy.epsilon_max"):
        SiteLevel(noise=SIGMA, epsilon_max=0.99 * cost).check(FedAvg(), 1)
    SiteLevel(noise=SIGMA, epsilon_max=1.01 * cost).check(FedAvg(), 1)
    SiteLevel(noise=SIGMA).check(FedAvg(), 1)


@pytest.mark.parametrize("most", [0.01, 0.5, 3.0])
def test_a_budget_holds_however_small_it_is(most: float) -> None:
    mechanism = SiteLevel(noise=2000.0, epsilon_max=most)
    power = next(n for n in range(1, 10**7) if mechanism.epsilon(10**n) > most)
    assert mechanism.forbids(10**power)
    assert not mechanism.forbids(10 ** (power - 1))
    assert not SiteLevel(noise=2000.0).forbids(10**power)


def test_noise_needs_accounting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(UsageError, match=r"install imperfed\[dp\]"):
        MECHANISM.check(FedAvg(), 1)
