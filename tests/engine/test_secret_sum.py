"""privacy=sum in one process: the mean of the updates and nothing else is merged, and what that rules out."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from imperfed.algorithms import catalogue
from imperfed.algorithms.fedavg import FedAvg
from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Updates
from imperfed.core.mechanism import Summed, more_than_weights
from imperfed.defences.krum import Krum
from imperfed.engine.failures import Crashed
from imperfed.engine.population import capped
from imperfed.engine.private_run import mean_of
from imperfed.privacy.keyed_noise import gaussian
from imperfed.privacy.secret_sum import SecretSum
from imperfed.testing.cases import Case, cases
from imperfed.testing.toy import Plain
from tests.engine.test_private_run import BACKENDS, engine

PLAIN = SecretSum()
U = Summed((3, 5, 8, 9), (0.4, 0.3, 0.2, 0.1))
SENT = torch.tensor([1.0, -2.0, 0.5])


def shares(mechanism: SecretSum, w: list[torch.Tensor]) -> torch.Tensor:
    """The sum of the shares of all sites, each with a key of its own."""
    parts = [mechanism.share(SENT, w[k], U.weights[k], U, bytes([k])) for k in range(4)]
    return torch.stack(parts).sum(0)


# -- shares ------------------------------------------------------------------------------------------------------------


def test_the_sum_of_shares_is_the_weighted_sum_of_clipped_updates() -> None:
    w = [SENT + k * torch.tensor([3.0, -1.0, 0.5]) for k in range(4)]
    found = SecretSum(clip=4.0).unfold(shares(SecretSum(clip=4.0), w))
    clipped = [u * min(1.0, 4.0 / float(u.norm())) if u.norm() else u for u in (one - SENT for one in w)]
    expected = sum((p * u for p, u in zip(U.weights, clipped, strict=True)), torch.zeros(3))
    assert found is not None
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_the_noise_of_the_sum_is_that_of_all_sites_together() -> None:
    """sigma C max p, as measured; by what one site's rows can change at most, 2 C max p, that is sigma / 2."""
    mechanism, zeros = SecretSum(clip=0.5, noise=3.0), torch.zeros(100_000)
    parts = [mechanism.share(zeros, zeros, p, U, bytes([k])) for k, p in enumerate(U.weights)]
    deviation = float((torch.stack(parts).sum(0).double() * 2.0**-40).std())
    assert deviation == pytest.approx(3.0 * 0.5 * 0.4, rel=0.02)
    far = [mechanism.share(SENT, SENT + s * torch.tensor([90.0, 0, 0]), 0.4, U, b"") for s in (1, -1)]
    furthest = float(((far[0] - far[1]).double() * 2.0**-40).norm())
    assert deviation / furthest == pytest.approx(mechanism.multiplier, rel=0.02)
    one = mechanism.share(zeros, zeros, 0.1, U, b"k").double() * 2.0**-40
    assert one[:9].tolist() == pytest.approx((3.0 * 0.5 * 0.4 / 2 * gaussian(b"k", 100_000))[:9].tolist(), abs=1e-9)


def test_shares_are_rounded_to_the_nearest_step() -> None:
    w = 2.0**-40 * torch.tensor([0.75, -0.75, 0.25, 3.0], dtype=torch.float64)
    assert PLAIN.share(torch.zeros(4), w, 1.0, U, b"").tolist() == [1, -1, 0, 3]


def test_the_longest_update_leaves_room_for_the_sum_of_all() -> None:
    """2^16 in steps of 2^-40 is 2^56: the weights of a sum are 1 together, and 2^63 is where whole numbers end."""
    longest = SecretSum(clip=65536.0)
    assert longest.share(torch.zeros(1), torch.tensor([1e9]), 1.0, U, b"").tolist() == [2**56]
    SecretSum(clip=32768.0, noise=2.0)
    for wrong in ({"clip": 65537.0}, {"clip": 32768.0, "noise": 2.01}):
        with pytest.raises(UsageError, match="may be 65536 at most"):
            SecretSum(**wrong)


def test_a_sum_that_no_clipped_updates_have_is_refused() -> None:
    fits = torch.tensor([3, 4]) * 2**40 // 5
    for mechanism, longest in (
        (SecretSum(clip=1.0), 1.0),
        (SecretSum(clip=1.0, noise=2.0), 1 + 2 * (math.sqrt(2) + 8)),
    ):
        assert mechanism.unfold((fits * (0.99 * longest)).long()) is not None
        assert mechanism.unfold((fits * (1.01 * longest)).long()) is None
        assert mechanism.unfold(torch.randint(-(2**62), 2**62, (2,))) is None


def test_clipped_updates_that_all_point_one_way_are_not_refused() -> None:
    """Their sum is as long as a sum can be, and rounding to whole steps makes some of these longer still."""
    for seed in range(20):
        u = torch.randn(500, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        parts = [SecretSum(clip=1.0).share(torch.zeros(500), 9 * u, p, U, b"") for p in U.weights]
        found = SecretSum(clip=1.0).unfold(torch.stack(parts).sum(0))
        assert found is not None
        assert float(found.norm()) == pytest.approx(1)


def test_one_share_missing_and_there_is_no_mean() -> None:
    sent = {"w": SENT, "buffers": torch.tensor([7.0])}
    w = [SENT + k * torch.tensor([0.3, -0.1, 0.5]) for k in range(4)]
    arrived: dict[int, Any] = {k: PLAIN.share(SENT, w[k], U.weights[k], U, bytes([k])) for k in range(4)}
    mean, _ = mean_of(PLAIN, sent, arrived)
    assert mean is not None
    by_hand = sum(p * one for p, one in zip(U.weights, w, strict=True))
    torch.testing.assert_close(mean["w"], by_hand[None])  # type: ignore[index]
    assert mean["buffers"].tolist() == [[7]]
    mean, why = mean_of(PLAIN, sent, arrived | {2: Crashed("lost")})
    assert mean is None
    assert "some are missing" in why


@pytest.mark.parametrize(
    ("sites", "weights", "said"),
    [
        ((0, 1), (0.5, 0.5), "a sum over 2 sites"),
        ((0, 1, 1), (0.4, 0.3, 0.3), "a sum over 2 sites"),
        ((0, 1, 2, 2), (0.4, 0.3, 0.2, 0.1), "3 are needed"),
        ((0, 1, 2), (0.6, 0.2, 0.2), "more than 50%"),
        ((0, 1, 2), (0.4, 0.4, 0.4), "have not 100 %"),
        ((0, 1, 2), (0.5, 0.5, 0.0), "not every site has a weight"),
        ((0, 1, 2), (0.5, 0.5), "not every site has a weight"),
        ((0, 1, 2), (math.nan, 0.5, 0.5), "not every site has a weight"),
    ],
)
def test_sums_that_say_too_much_about_one_site(sites: Any, weights: Any, said: str) -> None:
    assert said in Summed(sites, weights).objection()
    assert not Summed((0, 1, 2), (0.5, 0.25, 0.25)).objection()


@pytest.mark.parametrize("wrong", [{"clip": 0.0}, {"noise": -1.0}, {"clip": 1e6}, {"clip": 1e4, "noise": 1e4}])
def test_wrong_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="privacy"):
        SecretSum(**wrong)


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_ends_as_without_privacy(backend: str) -> None:
    make = BACKENDS[backend]
    one, other = engine(PLAIN, make_backend=make).go(), engine(None, make_backend=make).go()
    assert torch.allclose(one.state.server["w"], other.state.server["w"], atol=1e-5)
    assert one.reports[0].losses == {}
    assert one.reports[0].course() == "no losses are sent"
    assert one.reports[0].sent == {"w": tuple(one.state.server["w"].shape)}


def test_no_site_weighs_more_than_half() -> None:
    e = engine(PLAIN, rounds=1, participation=0.75)
    n = [e.population.sizes[k] for k in e.sample(0)]
    assert len(n) == 3
    counts = [12.0, 20.0, 90.0]
    assert max(capped(counts, 0.5)) == 32.0


@pytest.mark.parametrize("noise", [0.0, 4.0])
def test_noise_is_counted_where_there_is_any(noise: float) -> None:
    e = engine(SecretSum(clip=0.01, noise=noise)).go()
    assert (e.budget is None) == (noise == 0)
    assert all(bool(report.epsilons) == (noise > 0) for report in e.reports)


def needs_only_the_mean() -> list[Case]:
    return [case for case in cases() if case.algorithm.needs_only_the_mean and not more_than_weights(case.algorithm, 2)]


SUMMED = list({case.algorithm.name: case for case in needs_only_the_mean()}.values())


@pytest.mark.parametrize("case", [c for c in SUMMED if c.algorithm.name != "local-only"], ids=str)
def test_a_method_that_says_so_merges_the_mean_as_it_merges_the_updates(case: Case) -> None:
    e = engine(None, case=case, rounds=2).go()
    updates, server = e.seen[-1], dict(e.state.server)
    context = e.server.contexts(1)[0]
    exchange = e.population.spec.algorithm.exchanges(1)[-1]
    mean = updates.average(updates.by_size())
    alone = Updates(updates.who[:1], updates.n.sum()[None], {name: t[None] for name, t in mean.items()})
    one, other = (exchange.aggregate(server, answers, context) for answers in (updates, alone))
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)


def test_which_methods_can_be_summed() -> None:
    names = {case.algorithm.name for case in needs_only_the_mean()}
    assert {"fedavg", "fedprox", "fedmom", "fedadc", "slowmo", "domo", "fedlsr"} <= names
    assert not names & {"cfl", "clipfl", "fedned", "pfedpll", "scaffold", "ifca"}


@pytest.mark.parametrize("method", ["cfl", "clipfl", "pfedpll"])
def test_a_method_that_looks_at_single_updates_is_refused(method: str) -> None:
    algorithm: Algorithm = catalogue()[method]()
    with pytest.raises(UsageError, match=f"{method} looks at each of them"):
        PLAIN.check(algorithm, 2)


def test_too_few_sites_and_defences_are_refused() -> None:
    with pytest.raises(UsageError, match="hides a site among 3 or more, and 2 take part"):
        engine(PLAIN, participation=0.5)
    with pytest.raises(UsageError, match="no defence or attack sees single updates"):
        engine(PLAIN, defence=Krum(adversaries=0))
    assert Case(FedAvg(), Plain()).trains
