"""IFCA: the numbers of the paper's update rule through the real engine, and clusters that never empty."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from imperfed.algorithms.ifca import IFCA, nonempty
from imperfed.core.components import Defence
from imperfed.core.errors import UsageError
from imperfed.defences.median import Median
from imperfed.defences.trimmed_mean import TrimmedMean
from imperfed.engine.local_training import Local
from imperfed.testing.toy import Watched, engine
from tests.support.bowls import Bowl, bowls, only
from tests.support.fair_federation import defended, federation


def leap(ends: list[list[float]], start: tuple[float, ...], others: list[list[float]]) -> Watched:
    """One round in which site k moves from wherever it starts to ends[k]: one step of 1 in a bowl around it."""
    data = bowls(*([[1.0, *end]] for end in ends))
    algorithm = IFCA(clusters=1 + len(others))
    e = engine(algorithm, Bowl(), data, Local(steps=1, batch=8, lr=1.0), only(*start), rounds=1)
    e.state.server["others"].copy_(torch.tensor(others).reshape(len(others), len(start)))
    return e.go()


def test_picks_trains_and_merges_by_cluster() -> None:
    # Squared distances to the models (1, -2) and (-1, 2): 9 and 5, 5 and 13, and a tie of 25, which goes to the first.
    e = leap([[1.0, 1.0], [2.0, 0.0], [4.0, 2.0]], (1.0, -2.0), [[-1.0, 2.0]])
    assert e.state.server["picks"].argmax(1).tolist() == [1, 0, 0]
    assert e.seen[0]["losses"].tolist() == [[4.5, 2.5], [2.5, 6.5], [12.5, 12.5]]
    assert e.state.server["w"].tolist() == [3.0, 1.0]
    assert e.state.server["others"].tolist() == [[1.0, 1.0]]
    assert e.model(0)["head.weight"].tolist() == [[1.0, 1.0]]
    assert e.model(1)["head.weight"].tolist() == [[3.0, 1.0]]


def test_all_models_go_down_once_and_then_one_to_train() -> None:
    e = leap([[1.0, 1.0], [2.0, 0.0], [4.0, 2.0]], (1.0, -2.0), [[-1.0, 2.0]])
    assert e.reports[0].down == 3 * (2 + 1) * 2 * 4  # three sites, two models and then one, of two float32 weights


def test_a_cluster_that_nobody_picks_gets_the_site_that_loses_least() -> None:
    # All three are nearer to (0, 0) than to (9, 9); (3, 3) is the one that loses least.
    e = leap([[1.0, 0.0], [3.0, 3.0], [0.0, 2.0]], (0.0, 0.0), [[9.0, 9.0]])
    assert e.state.server["picks"].argmax(1).tolist() == [0, 1, 0]
    assert e.state.server["w"].tolist() == [0.5, 1.0]
    assert e.state.server["others"].tolist() == [[3.0, 3.0]]


@pytest.mark.parametrize(
    ("losses", "elsewhere", "picks"),
    [
        ([[0.9, 0.5], [0.4, 0.6], [0.7, 0.7]], [0, 0], [1, 0, 0]),
        ([[0.1, 0.9], [0.1, 0.3], [0.1, 0.4]], [0, 0], [0, 1, 0]),
        ([[0.1, 0.2, 0.9], [0.1, 0.9, 0.3], [0.1, 0.9, 0.9]], [0, 0, 0], [1, 2, 0]),  # who left 0 for 1 stays
        ([[0.1, 0.2, 0.3]], [0, 0, 0], [0]),  # fewer sites than clusters: some must be empty
        ([[0.1, 0.9], [0.1, 0.3]], [0, 1], [0, 0]),  # a site that does not choose now is in cluster 1
        ([[0.1, 0.2, 0.3]], [0, 2, 0], [0]),  # who is alone in its cluster stays, though another is empty
    ],
)
def test_clusters_are_kept_nonempty(losses: list[list[float]], elsewhere: list[int], picks: list[int]) -> None:
    assert nonempty(torch.tensor(losses), torch.tensor(elsewhere)).tolist() == picks


def test_two_of_one_kind_on_duty_are_not_torn_apart() -> None:
    data = bowls(*([[1.0, 3.0]],) * 3, *([[1.0, -3.0]],) * 3)
    e = engine(IFCA(), Bowl(), data, Local(steps=1, batch=8, lr=1.0), only(0.5), rounds=8, participation=0.34)
    e.state.server["others"].copy_(torch.tensor([[-0.5]]))
    e.go()
    assert any(set(report.who) <= {0, 1, 2} for report in e.reports)
    assert set().union(*(report.who for report in e.reports)) == set(range(6))
    assert e.state.server["picks"].argmax(1).tolist() == [0, 0, 0, 1, 1, 1]
    assert (e.state.server["w"].item(), e.state.server["others"].item()) == (3.0, -3.0)


def test_one_cluster_s_model_is_not_the_global_one() -> None:
    federation, oracle = bowls([[1.0, 1.0]], [[1.0, 3.0]])
    common = replace(oracle, common_x=oracle.test_x[0], common_y=oracle.test_y[0])
    for clusters in (1, 2):
        e = engine(
            IFCA(clusters=clusters), Bowl(), (federation, common), Local(steps=1, batch=8), only(0.5), rounds=1
        ).go()
        assert bool(e.reports[0].common) == bool(e.shared_model()) == (clusters == 1)


def test_means_may_be_weighted_by_size() -> None:
    data = bowls([[1.0, 2.0]] * 3, [[1.0, 4.0]], [[1.0, -3.0]])
    e = engine(IFCA(weighted=True), Bowl(), data, Local(steps=1, batch=8, lr=1.0), only(1.0), rounds=1)
    e.state.server["others"].copy_(torch.tensor([[-1.0]]))
    assert e.go().state.server["w"].tolist() == [2.5]


def test_the_models_start_apart_and_norms_start_at_one() -> None:
    w = torch.tensor([0.3, -0.2, 1.0, 0.0, 0.7, -0.4, 0.9, -0.6])
    torch.manual_seed(0)
    others = IFCA(clusters=4).init_server(w, 5)["others"]
    assert torch.equal(others.abs(), w.abs().expand(3, -1))
    assert (others[:, 2] == 1).all()
    assert len({tuple(row) for row in others.tolist()} | {tuple(w.tolist())}) == 4


def test_one_cluster_is_plain_averaging_of_sites() -> None:
    e = leap([[1.0, 1.0], [3.0, 5.0]], (0.0, 0.0), [])
    assert e.state.server["w"].tolist() == [2.0, 3.0]


def test_no_clusters() -> None:
    with pytest.raises(UsageError, match=r"method\.clusters"):
        IFCA(clusters=0)


def test_three_rounds_as_written_in_numpy() -> None:
    """Four unequal sites, three a round, two models, two local steps with momentum."""
    rng = np.random.default_rng(1)
    points = [rng.normal(size=(n, 2)) + at for n, at in ((2, 2.0), (3, -2.0), (1, 2.5), (4, -1.5))]
    data = bowls(*([[1.5, *row] for row in p.tolist()] for p in points))
    local = Local(steps=2, batch=16, lr=0.1, momentum=0.5)
    e = engine(IFCA(), Bowl(), data, local, only(0.2, -0.1), rounds=3, participation=0.75)
    theta = [e.state.server["w"].double().numpy().copy(), e.state.server["others"][0].double().numpy().copy()]
    last = {k: k % 2 for k in range(4)}
    for t in range(3):
        who = e.sample(t)
        f = [[0.75 * ((w - points[k]) ** 2).sum(1).mean() for w in theta] for k in who]
        off = [last[k] for k in range(4) if k not in who]
        picks = nonempty(torch.tensor(f), torch.tensor([off.count(0), off.count(1)])).tolist()
        last |= dict(zip(who, picks, strict=True))
        ends = []
        for k, j in zip(who, picks, strict=True):
            w, v = theta[j].copy(), np.zeros(2)
            for _ in range(2):
                v = 0.5 * v + 1.5 * (w - points[k].mean(0))
                w = w - 0.1 * v
            ends.append(w)
        for j in range(2):
            mine = [end for end, pick in zip(ends, picks, strict=True) if pick == j]
            theta[j] = np.mean(mine, 0) if mine else theta[j]
    e.go()
    assert e.state.server["w"].numpy() == pytest.approx(theta[0], abs=1e-5)
    assert e.state.server["others"][0].numpy() == pytest.approx(theta[1], abs=1e-5)
    assert {tuple(report.who) for report in e.reports} != {(0, 1, 2, 3)}


@pytest.mark.parametrize("defence", [Median(), TrimmedMean()], ids=lambda d: d.name)
def test_sites_of_one_cluster_may_be_mixed_number_by_number(defence: Defence):
    assert defended(IFCA(clusters=1), defence, federation(), rounds=1).state.round == 1
