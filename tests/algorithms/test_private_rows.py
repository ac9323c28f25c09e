"""Private steps on rows of W: the mechanism by hand, what one site can change, and what it costs."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from imperfed.algorithms._private_rows import PrivateRows, spent
from imperfed.algorithms.fedalc import FedALC
from imperfed.algorithms.fedaws import FedAwS
from imperfed.core.errors import UsageError
from imperfed.engine.seeds import SERVER, generator
from tests.support import positive_labels
from tests.support.positive_labels import HELD, Hand, run, split, spread, unit
from tests.support.transcription import double, near

pytest.importorskip("dp_accounting")  # nothing is made private without somebody who counts what it costs

RATES = {"lr_theta": 0.6, "lr_w": 0.25}
S, SIGMA = 0.12, 0.5


def rounds_by_hand(hand: Hand, reports: list, bounded: list[bool]) -> None:
    """Rounds of Algorithm 1 in which line 20 is private."""
    for report in reports:
        clients = {k: hand.client(k) for k in report.who}
        n = {k: len(positive_labels.HELD[k][1]) for k in report.who}
        hand.A = sum(n[k] * clients[k][0] for k in report.who) / sum(n.values())
        draw = generator(0, report.round, SERVER, "hall")
        noise = torch.randn(hand.W.shape, generator=draw, dtype=torch.float64).numpy()
        W = hand.W.copy()
        for label in {positive_labels.HELD[k][0] for k in report.who}:
            mine = [k for k in report.who if positive_labels.HELD[k][0] == label]
            share = {k: n[k] / sum(n[j] for j in mine) for k in mine}
            for k in mine:
                change = clients[k][1] - hand.W[label]
                bounded.append(np.linalg.norm(change) > S)
                change *= min(1.0, S / np.linalg.norm(change))
                W[label] += share[k] * change
            W[label] += SIGMA * S * max(share.values()) * noise[label]
        W = unit(W)
        hand.W = unit(W - hand.server(W))


@double()
@pytest.mark.parametrize(("one_pass", "sites"), [(False, 5), (True, 4)], ids=["copies", "one pass"])
def test_three_rounds_of_unequal_clients_with_one_absent(one_pass: bool, sites: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(positive_labels, "HELD", HELD[:sites])  # in copies two sites share class 3
    method = FedAwS(lam=3.0, lr_server=0.1, one_pass=one_pass, noise_w=SIGMA, clip_w=S, **RATES)
    e = run(method)
    hand = Hand(*split(e), **RATES, server=lambda W: 0.3 * spread(W, lambda d, u, v: max(0.0, 1 - d) ** 2))
    e.go()
    bounded: list[bool] = []
    rounds_by_hand(hand, e.reports, bounded)
    assert True in bounded
    assert False in bounded
    assert {len(report.who) for report in e.reports} == {sites - 1}
    for mine, expected in zip(split(e), (hand.A, hand.W), strict=True):
        near(torch.from_numpy(mine), expected, 1e-7)


def test_a_site_is_bounded_over_all_its_rows_together():
    change, at = torch.tensor([[3.0, 0.0], [0.3, 0.4], [0.0, 4.0]]), torch.tensor([0, 1, 0])
    found = PrivateRows(noise_w=1.0, clip_w=1.0).bounded(change, at)
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.0], [0.3, 0.4], [0.0, 0.8]]))
    assert PrivateRows().bounded(change, at) is change


def test_what_one_site_can_change():
    """Without a site's change W differs by S at most, in units of max_k s_kc; also where sites hold several classes."""
    method = FedAwS(noise_w=1.0, clip_w=S)
    e = run(method)
    held = torch.tensor([0, 0, 1, 2, 2]), torch.tensor([0, 1, 1, 3, 0]), torch.tensor([2.0, 9.0, 1.0, 4.0, 5.0])
    largest = torch.tensor([5 / 7, 0.9, 1.0, 1.0]).unsqueeze(1)  # nobody here holds class 2
    change = 7 * torch.randn(5, positive_labels.D, generator=torch.Generator().manual_seed(1))

    def moved(change: torch.Tensor) -> torch.Tensor:
        context = SimpleNamespace(net=e.server.net, draw=torch.Generator().manual_seed(2))
        return method.moved(e.state.server, change, held, context)[0]

    without = [moved(change * (held[0] != k).unsqueeze(1)) for k in range(3)]
    apart = [float(((moved(change) - W) / largest).norm()) for W in without]
    assert max(apart) <= S * 1.0001
    assert min(apart) > S / 20


def test_noise_shrinks_with_the_largest_share():
    W, draw = torch.zeros(2, 20_000), torch.Generator().manual_seed(0)
    server = {"released": torch.zeros(2, dtype=torch.int64)}
    W, more = PrivateRows(noise_w=2.0, clip_w=0.1).release(server, W, torch.tensor([1.0, 0.25]), draw)
    assert W.std(1).tolist() == pytest.approx([0.2, 0.05], rel=0.03)
    assert more["released"].tolist() == [1, 1]


def test_only_rows_that_somebody_moves_are_blurred_and_counted():
    method = FedAwS(lam=0.0, noise_w=1.0, clip_w=S)
    e = run(method, participation=0.2)
    before = split(e)[1]
    e.go()
    times = [sum(HELD[report.who[0]][0] == c for report in e.reports) for c in range(positive_labels.C)]
    assert e.state.server["released"].tolist() == times
    assert (np.abs(split(e)[1] - before).max(1) > 1e-3).tolist() == [t > 0 for t in times]


@pytest.mark.parametrize("kind", [FedAwS, FedALC])
def test_the_account_of_a_run(kind: type):
    method = kind(noise_w=6.0)
    e = run(method, participation=0.8).go()
    releases = int(e.state.server["released"].max())
    assert releases == 3
    assert method.figures(e.state.server) == {"epsilon_w": spent(6.0, 1e-5, 3), "delta": 1e-5, "releases_w": 3}
    assert method.figures(run(method).state.server)["epsilon_w"] == 0.0
    assert kind().figures({}) == {}


def test_counts_and_steps_are_told_apart():
    method = FedALC(noise=4.0, noise_w=6.0)
    account = method.figures(run(method).go().state.server)
    assert account["epsilon"] == pytest.approx(spent(4.0, 1e-5), rel=1e-6)
    assert account["epsilon_w"] == spent(6.0, 1e-5, 3)


def test_one_pass_does_not_show_sites_that_share_a_class():
    with pytest.raises(UsageError, match="set one_pass=false"):
        run(FedAwS(one_pass=True, noise_w=1.0))


@pytest.mark.parametrize("settings", [{"noise_w": -1.0}, {"clip_w": 0.0}, {"delta": 0.0}])
def test_bad_settings_are_refused(settings: dict[str, float]):
    with pytest.raises(UsageError, match=next(iter(settings))):
        FedAwS(**settings)


def test_noise_needs_accounting(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(UsageError, match=r"install imperfed\[dp\]"):
        FedAwS(noise_w=1.0)
    FedAwS()
