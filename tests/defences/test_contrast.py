"""The equations of the placebo contrast: figures worked out by hand and elsewhere, to six digits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from imperfed.core.exchange import Updates
from imperfed.core.network import Layout, Net
from imperfed.defences.placebo.contrast import Contrast, moves, probe_rows, rise_and_level, slope, weighted_median
from tests.support.fair_federation import network

SHARES = torch.tensor([0.30, 0.60, 0.50, 0.35], dtype=torch.float64)
LEVELS = torch.tensor([0.1, 0.4, -0.5, 0.0, -0.2, 0.3], dtype=torch.float64)
RISES = torch.tensor(
    [
        [0.02, 0.01, -0.01, 0.03],
        [0.05, 0.03, 0.02, 0.02],
        [-0.02, -0.01, -0.03, 0.00],
        [0.01, 0.02, 0.00, -0.02],
        [0.31, 0.02, 0.01, 0.01],
        [0.04, 0.00, 0.03, 0.01],
    ],
    dtype=torch.float64,
)
EVERYBODY = torch.ones(6, dtype=torch.bool)
KAPPA = 0.063492


def close(values: Any) -> Any:
    return pytest.approx(values, abs=5.1e-7)


def innocent() -> Tensor:
    """The rises with the adversary's in the target group's column taken back."""
    q = RISES.clone()
    q[4, 0] = 0.03
    return q


def test_the_contrast_of_six_sites():
    found = Contrast.of(RISES, LEVELS, SHARES, 0)
    assert float(found.kappa) == close(KAPPA)
    assert found.c.tolist() == close([0.018095, 0.042381, -0.010476, 0.010000, 0.313810, 0.034286])
    assert found.P[0].tolist() == close([0.006190, -0.013175, 0.027778])
    before = [-0.687981, 1.375961, -3.116147, -1.375961, 24.443545, 0.687981]
    assert found.scores(EVERYBODY).tolist() == close(before)


def test_after_an_alarm_suspects_lose_weight():
    z, w = Contrast.of(RISES, LEVELS, SHARES, 0).judge(4.0)
    assert z.tolist() == close([0.343990, 2.407932, -2.084176, -0.343990, 25.475516, 1.719951])
    assert w.tolist() == close([1, 0.228045, 1, 1, 0, 1])


def test_without_an_alarm_nobody_does():
    z, w = Contrast.of(innocent(), LEVELS, SHARES, 0).judge(4.0)
    assert z.tolist() == close([-0.667746, 1.396196, -3.095913, -1.355726, 0.667746, 0.708215])
    assert w.tolist() == [1.0] * 6
    highest = float(z.max())
    assert Contrast.of(innocent(), LEVELS, SHARES, 0).judge(highest)[1].tolist() == [1.0] * 6  # must be exceeded
    assert min(Contrast.of(innocent(), LEVELS, SHARES, 0).judge(highest - 1e-6)[1].tolist()) < 1


def test_the_target_may_be_any_column():
    order = [1, 2, 0, 3]
    moved = Contrast.of(RISES[:, order], LEVELS, SHARES[order], 2)
    assert torch.equal(moved.judge(4.0)[1], Contrast.of(RISES, LEVELS, SHARES, 0).judge(4.0)[1])


def given(c: list[float], sigma: float = 1.0) -> Contrast:
    """A contrast whose median is 0 where the middle of c is, in units of sigma."""
    return Contrast(torch.tensor(0.0), torch.tensor(c, dtype=torch.float64), torch.empty(0), torch.tensor(sigma))


def test_at_most_a_third_rounded_up_lose_weight():
    assert given([0.0, 0.0, 0.0, 0.0, 0.0, 9.0, 9.0, 9.0, 9.0]).judge(4.0)[1].tolist() == [1.0] * 5 + [0.0] * 3 + [1.0]
    assert given([0.0, 0.0, 9.0, 9.0]).judge(4.0)[1].tolist() == [1.0, 1.0, 0.0, 0.0]
    assert given([0.0] * 4 + [9.0] * 3).judge(4.0)[1].tolist() == [1.0] * 4 + [0.0] * 3


def test_of_equal_scores_the_lower_number_comes_first():
    assert given([5.0, 0.0, 5.0, 0.0, 5.0, 0.0, 0.0]).judge(4.0)[1].tolist() == [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0]
    assert given([9.0, 0.0, 9.0, 0.0, 9.0]).judge(4.0)[1].tolist()[4] == 1.0


def test_weights_fall_between_two_scores():
    w = given([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.25, 2.0, 2.75, 9.0]).judge(4.0)[1]
    assert w.tolist() == close([1.0] * 7 + [0.5, 0.0, 0.0])


def test_the_median_is_that_of_the_sites_inside():
    found, inside = given([0.0, 1.0, 2.0, 10.0], sigma=2.0), torch.tensor([True, True, True, False])
    assert found.scores(inside).tolist() == [-0.5, 0.0, 0.5, 4.5]
    assert found.scores(torch.ones(4, dtype=torch.bool)).tolist() == [-0.75, -0.25, 0.25, 4.25]  # 1.5 in the middle


LADDER = [-1.6, -1.1, -1.1, -1.0, -0.7, -0.6, -0.3, 0.5, 0.6, 0.7, 1.2, 1.5, 2.05, 2.2, 2.7, 3.7, 4.5, 4.7, 4.9]


def test_weights_and_scores_are_computed_from_each_other_four_times():
    """Every pass takes sites out of the median, so that three or five passes would give other weights."""
    z, w = given(LADDER).judge(4.0)
    assert w.tolist() == close([1.0] * 12 + [0.266667, 0.166667] + [0.0] * 5)
    assert float(z.max()) == close(5.35)  # 4.9 above the median of the twelve sites inside, which is -0.45


def test_the_weighted_median():
    values = torch.tensor([3.0, 1.0, 2.0])
    assert weighted_median(values, torch.tensor([1.0, 1.0, 1.0])) == 2
    assert weighted_median(values, torch.tensor([1.0, 1.0, 0.5])) == 2  # 1.25 is reached at 2
    assert weighted_median(values, torch.tensor([1.0, 3.0, 2.0])) == 1  # half of the total is reached exactly
    assert weighted_median(values, torch.tensor([5.0, 1.0, 1.0])) == 3
    assert weighted_median(torch.tensor([2.0, 1.0, 2.0, 1.0]), torch.ones(4)) == 1
    assert weighted_median(torch.tensor([7.0]), torch.tensor([0.1])) == 7


def test_the_slope_is_weighted_by_shares_and_levels():
    q, m = torch.tensor([[0.0, 0.0], [1.0, 8.0]]), torch.tensor([0.0, 1.0])
    assert slope(q, m, torch.tensor([1.0, 2.0])) == 4  # 1 with weight 1, 4 with weight 2
    assert slope(q, m, torch.tensor([2.0, 1.0])) == 0.5
    assert slope(q, -m, torch.tensor([1.0, 2.0])) == -4


def test_pairs_that_do_not_differ_tell_no_slope():
    q, f = torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64)
    assert slope(q, torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64), f) == 4  # 5 and 4, alike in weight
    assert slope(q, torch.zeros(3, dtype=torch.float64), f) == 0
    assert slope(q[:2], torch.tensor([0.0, 1e-12], dtype=torch.float64), f) == 0
    assert slope(q[:2], torch.tensor([0.0, 2e-12], dtype=torch.float64), f) == pytest.approx(5e11)


# -- the models --------------------------------------------------------------------------------------------------------


def test_probe_rows_differ_in_the_groups_columns_alone():
    rows = torch.randn(5, 6)
    probes = probe_rows(rows, slice(1, 4))
    assert probes.shape == (5, 5, 6)
    assert torch.equal(probes[:, :, [0, 4, 5]], rows[:, [0, 4, 5]].expand(5, -1, -1))
    inside = probes[:, :, 1:4].unique(dim=1).squeeze(1)
    assert inside.tolist() == [[0, 0, 0], pytest.approx([0.4] * 3), [1, 0, 0], [0, 1, 0], [0, 0, 1]]


def models(count: int) -> tuple[Net, Tensor]:
    module = network()
    net = Net(module.eval(), Layout.of(module, lambda name: False))
    return net, net.w + 0.3 * torch.randn(count, len(net.w), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def centred(net: Net, w: Tensor, x: Tensor, u: int) -> float:
    """The mean over rows of the logit of u, minus the mean over the classes: one model, row by row."""
    logits = net.load(w)(x)
    return sum(float(row[u] - row.mean()) for row in logits) / len(x)


def test_rise_and_level_are_those_of_each_model():
    net, w = models(2)
    rows, u = torch.randn(7, 8), 2
    r, level = rise_and_level(net, {"w": w, "buffers": w[:, :0]}, probe_rows(rows, slice(1, 4)), u)
    for n in range(2):
        at = rows.clone()
        at[:, 1:4] = 0.0
        nobody = centred(net, w[n], at, u)
        for g in range(3):
            at[:, 1:4] = torch.eye(3)[g]
            assert float(r[n, g]) == pytest.approx(centred(net, w[n], at, u) - nobody, abs=1e-5)
        at[:, 1:4] = 0.4
        assert float(level[n]) == pytest.approx(centred(net, w[n], at, u), abs=1e-5)


def test_a_move_is_measured_by_the_length_of_the_update():
    net, w = models(4)
    probes = probe_rows(torch.randn(7, 8), slice(1, 4))
    sent, up = ({"w": part, "buffers": part[:, :0]} for part in (w[:2], w[2:]))
    q, m = moves(net, sent, Updates((0, 1), torch.ones(2), up), probes, 2)
    (r, level), (r_n, level_n) = (rise_and_level(net, tree, probes, 2) for tree in (sent, up))
    d = (w[2:] - w[:2]).square().sum(1).sqrt()
    torch.testing.assert_close(q, (r_n - r) / d.double().unsqueeze(1), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(m, (level_n - level) / d.double(), rtol=1e-6, atol=1e-9)
