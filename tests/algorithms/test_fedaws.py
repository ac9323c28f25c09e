import numpy as np
import pytest
import torch

from imperfed.algorithms.cc import CC
from imperfed.algorithms.fedavg_fixed import FedAvgFixed
from imperfed.algorithms.fedaws import FedAwS
from imperfed.core.errors import UsageError
from imperfed.core.federation import Federation
from imperfed.core.labels import Positive
from imperfed.data.oracle import Oracle
from imperfed.engine.local_training import Local
from imperfed.testing.toy import engine
from tests.support.positive_labels import ONE_STEP, Hand, linear, run, split, spread, unit
from tests.support.transcription import double, near

RATES = {"lr_theta": 0.6, "lr_w": 0.25}


def by_hand(e, **how) -> Hand:
    """The same rounds with the same sites on duty."""
    A, W = split(e)
    hand = Hand(A, W, RATES["lr_theta"], how.pop("lr_w", RATES["lr_w"]), **how)
    e.go()
    for report in e.reports:
        hand.round(report.who)
    assert {len(report.who) for report in e.reports} == {4}
    return hand


@double()
@pytest.mark.parametrize("one_pass", [False, True], ids=["copies", "one pass"])
@pytest.mark.parametrize("by_size", [True, False])
def test_three_rounds_of_unequal_clients_with_one_absent(one_pass: bool, by_size: bool):
    e = run(FedAwS(lam=3.0, lr_server=0.1, one_pass=one_pass, by_size=by_size, **RATES))
    hand = by_hand(e, by_size=by_size, server=lambda W: 0.3 * spread(W, lambda d, u, v: max(0.0, 1 - d) ** 2))
    for mine, expected in zip(split(e), (hand.A, hand.W), strict=True):
        near(torch.from_numpy(mine), expected, 1e-7)


@double()
@pytest.mark.parametrize(
    ("settings", "h"),
    [
        ({"neighbours": 2}, lambda d, u, v: max(0.0, 1 - d) ** 2),
        ({"neighbours": 2, "nu": 0.7}, lambda d, u, v: max(0.0, 0.7 - d) ** 2),
        ({"neighbours": 2, "mined": True}, lambda d, u, v: -(d**2)),
    ],
    ids=["hinge", "margin", "mined"],
)
def test_neighbours(settings: dict[str, object], h):
    e = run(FedAwS(lam=1.0, lr_server=0.1, one_pass=True, **RATES, **settings))
    hand = by_hand(e, server=lambda W: 0.1 * spread(W, h, K=2))
    near(torch.from_numpy(split(e)[1]), hand.W, 1e-7)


@double()
def test_without_the_servers_step_it_is_averaging_with_a_row_a_site():
    e = run(FedAwS(lam=0.0, **RATES))
    hand = by_hand(e)
    for mine, expected in zip(split(e), (hand.A, hand.W), strict=True):
        near(torch.from_numpy(mine), expected, 1e-9)


@double()
def test_one_pass_is_the_copies_also_where_only_some_sites_are_on_duty():
    runs = [run(FedAwS(lam=2.0, lr_server=0.05, one_pass=way, **RATES), participation=0.4).go() for way in (0, 1)]
    torch.testing.assert_close(runs[0].state.server["w"], runs[1].state.server["w"], rtol=0, atol=1e-12)
    assert runs[0].reports[-1].losses == pytest.approx(runs[1].reports[-1].losses, abs=1e-12)


def test_one_pass_makes_one_step_whatever_the_local_settings():
    runs = [run(FedAwS(one_pass=True), Local(steps=steps, batch=2)).go() for steps in (1, 7)]
    assert torch.equal(runs[0].state.server["w"], runs[1].state.server["w"])


@double()
def test_one_pass_moves_a_row_along_the_mean_over_its_class_where_sites_hold_several():
    """Sites with labels 0 0 0 1 and 0 2 2 2 2: every row of W goes by the mean gradient of its rows, all sites'."""
    x, y = torch.randn(9, 5, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 0, 0, 1, 0, 2, 2, 2, 2])
    fed = Federation("p", x, Positive(y, 4), (0, 4, 9), ("a", "b"), tuple("abcd"), tuple("012345678"), x[:0]).check()
    for by_size in (True, False):
        method = FedAwS(lam=0.0, one_pass=True, by_size=by_size, **RATES)
        e = engine(method, method.objective, (fed, Oracle(None, (), ())), ONE_STEP, linear(), rounds=1)
        A, W = split(e)
        G, p = unit(x.numpy() @ A.T), [1 / 9] * 9 if by_size else [1 / 8] * 4 + [1 / 10] * 5
        e.go()
        for c in range(3):
            mine = [i for i in range(9) if y[i] == c]
            s = G[mine] @ W[c]
            slope = -2 * np.maximum(0, 0.9 - s) * np.array(p)[mine] / np.array(p)[mine].sum()
            step = (slope[:, None] * (G[mine] - s[:, None] * W[c])).sum(0)
            near(torch.from_numpy(split(e)[1][c]), unit(W[c] - RATES["lr_w"] * step), 1e-12)
        near(torch.from_numpy(split(e)[1][3]), W[3], 1e-12)


def test_rows_that_nobody_on_duty_holds_stay():
    e = run(FedAwS(lam=0.0, **RATES), rounds=1, participation=0.2)
    before = split(e)[1]
    e.go()
    (k,) = e.reports[0].who
    label = (0, 1, 2, 3, 3)[k]
    moved = np.abs(split(e)[1] - before).max(1) > 1e-4
    assert moved.tolist() == [c == label for c in range(4)]


def test_classes_that_collapse_are_reported_once():
    method = FedAwS(lam=0.0, lr_theta=3.0, lr_w=3.0, one_pass=True)
    e = run(method, rounds=40, participation=1.0).go()
    notes = [note for report in e.reports for note in report.notes]
    assert len(notes) == 1
    assert "class embeddings are collapsing" in notes[0]
    spread_out = run(FedAwS(lam=10.0, lr_server=0.1, lr_theta=3.0, lr_w=3.0, one_pass=True), rounds=40).go()
    assert not [note for report in spread_out.reports for note in report.notes]


def test_bytes_are_theta_and_one_row():
    theta, D, opening = 15, 3, 5 * (15 + 12) * 4
    reports = run(FedAwS(one_pass=True), rounds=2, participation=1.0).go().reports
    assert reports[1].down == reports[1].up == 5 * (theta + D) * 4
    assert reports[0].down == opening + 5 * (theta + D) * 4
    fixed = run(FedAvgFixed(one_pass=True), rounds=2, participation=1.0).go().reports
    assert [report.down for report in fixed] == [5 * (theta + D) * 4, 5 * theta * 4]
    assert [report.up for report in fixed] == [5 * theta * 4] * 2


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"lr_theta": 0.0}, r"method\.lr_theta must be above 0"),
        ({"lr_w": -1.0}, "must be 0 or more"),
        ({"lam": -1.0}, r"method\.lam must be 0 or more"),
        ({"neighbours": -1}, r"method\.neighbours must be 0 or more"),
        ({"mined": True}, "set neighbours above 0"),
        ({"objective": CC()}, "fedaws learns from positive labels; cc does not"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], complaint: str):
    with pytest.raises(UsageError, match=complaint):
        FedAwS(**settings)


def test_with_classes_drawn_the_step_is_that_of_those_classes_alone():
    draw = torch.Generator().manual_seed(1)
    W = torch.nn.functional.normalize(torch.randn(9, 5, generator=draw))
    some, every = (FedAwS(lam=2.0, lr_server=0.1, neighbours=2, drawn=drawn) for drawn in (4, 0))
    moved = some.spread({}, W, torch.Generator().manual_seed(3))
    among = torch.randperm(9, generator=torch.Generator().manual_seed(3))[:4].sort().values
    assert torch.equal(moved[among], every.spread({}, W[among], draw))
    assert (moved != W).any(1).nonzero().flatten().tolist() == among.tolist()
    assert torch.equal(FedAwS(drawn=9).spread({}, W, draw), FedAwS().spread({}, W, draw))
