"""The interface fits what comes later: six methods reproduce figures worked out by hand, through the real engine."""

from __future__ import annotations

import pytest
import torch
from shapes import IFCA, Bowl, FedNAG, FedProx, Krum, Mime, Scaffold, bowls, only
from toy import Watched, engine

from imperfed.core import Algorithm
from imperfed.descend import Local

# f_1(x) = (x - 1)^2 / 2 and f_2(x) = 3 (x + 1)^2 / 2; from x = 2, two local steps of 0.1 a round.
TWO = ([[1.0, 1.0]], [[3.0, -1.0]])
LOCAL = Local(steps=2, batch=8, lr=0.1, momentum=0.0)


def path(algorithm: Algorithm, *sites: list[list[float]], local: Local = LOCAL) -> tuple[Watched, list[float]]:
    """The global weight after each of three rounds."""
    e = engine(algorithm, Bowl(), bowls(*sites), local, only(2.0), rounds=3)
    points: list[float] = []
    e.run(lambda report: points.append(e.state.server["w"].item()), lambda: False, None)
    return e, points


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (FedProx(mu=1.0), [1.19, 0.6473, 0.283691]),
        (FedProx(mu=0.0), [1.14, 0.581, 0.217650]),  # FedAvg
        (Scaffold(), [1.14, 0.5475, 0.165905]),
        (FedNAG(gamma=0.5), [0.69, -0.077875, -0.376992]),
        (FedNAG(gamma=0.0), [1.14, 0.581, 0.217650]),
        (Mime(beta=0.5), [1.525, 0.90275, 0.325102]),
    ],
    ids=repr,
)
def test_two_clients(algorithm: Algorithm, expected: list[float]) -> None:
    assert path(algorithm, *TWO)[1] == pytest.approx(expected, abs=1e-5)


def test_fedavg_weighs_by_size() -> None:
    unequal = ([[1.0, 1.0]], [[3.0, -1.0]] * 3)
    assert path(FedProx(mu=0.0), *unequal)[1] == pytest.approx([0.805, 0.12385, -0.264406], abs=1e-5)


def test_scaffold_remembers_at_the_sites_and_at_the_server() -> None:
    e, _ = path(Scaffold(), *TWO)
    assert e.state.server["c"].item() == pytest.approx(1.907975, abs=1e-5)
    assert e.state.memory["c"].flatten().tolist() == pytest.approx([-0.579725, 4.395675], abs=1e-5)


def test_fednag_averages_the_velocity() -> None:
    assert path(FedNAG(), *TWO)[0].state.server["v"].item() == pytest.approx(-0.143128, abs=1e-5)


def test_mime_keeps_momentum_of_full_gradients() -> None:
    e, _ = path(Mime(), *TWO)
    assert e.state.server["m"].item() == pytest.approx(3.040250, abs=1e-5)
    assert [u.trees.keys() for u in e.seen[:2]] == [{"g"}, {"w", "buffers"}]


def test_mime_with_one_step_is_the_centralised_optimiser() -> None:
    x, m, expected = 2.0, 0.0, []
    for _ in range(3):
        c = ((x - 1) + 3 * (x + 1)) / 2
        x, m = x - 0.1 * (0.5 * c + 0.5 * m), 0.5 * c + 0.5 * m
        expected.append(x)
    assert path(Mime(), *TWO, local=Local(steps=1, batch=8, lr=0.1))[1] == pytest.approx(expected, abs=1e-5)


def leap(algorithm: Algorithm, ends: list[list[float]], start: tuple[float, ...]) -> Watched:
    """One round in which site k moves from wherever it starts to ends[k]: one step of 1 in a bowl around it."""
    scene = bowls(*([[1.0, *end]] for end in ends))
    return engine(algorithm, Bowl(), scene, Local(steps=1, batch=8, lr=1.0), only(*start), rounds=1).go()


def test_ifca_picks_trains_and_merges_by_cluster() -> None:
    # Squared distances to the models (1, -2) and (-1, 2): 9 and 5, 5 and 13, and a tie of 25, which goes to the first.
    e = leap(IFCA(), [[1.0, 1.0], [2.0, 0.0], [4.0, 2.0]], (1.0, -2.0))
    assert e.state.server["picks"].argmax(1).tolist() == [1, 0, 0]
    assert e.state.server["w"].tolist() == [3.0, 1.0]
    assert e.state.server["other"].tolist() == [1.0, 1.0]
    assert e.model(0)["head.weight"].tolist() == [[1.0, 1.0]]
    assert e.model(1)["head.weight"].tolist() == [[3.0, 1.0]]
    assert e.reports[0].down == 3 * 2 * 2 * 4  # three sites, two models of two float32 weights


def test_ifca_leaves_a_model_that_nobody_picks() -> None:
    e = leap(IFCA(), [[2.0, 0.0]], (1.0, -2.0))
    assert e.state.server["w"].tolist() == [2.0, 0.0]
    assert e.state.server["other"].tolist() == [-1.0, 2.0]


SEVEN = [[1.00, 2.00], [1.25, 1.82], [0.93, 2.11], [1.12, 2.27], [0.78, 1.91], [1.03, 1.66], [10.0, -10.0]]


def test_krum_takes_the_answer_amid_the_others() -> None:
    krum = Krum(f=1)
    expected = [0.2557, 0.5748, 0.3277, 0.6136, 0.4730, 0.5280, 884.5479]
    assert krum.scores(torch.tensor(SEVEN)).tolist() == pytest.approx(expected, abs=1e-4)
    assert leap(krum, SEVEN, (0.5, -0.5)).state.server["w"].tolist() == pytest.approx([1.0, 2.0], abs=1e-6)


def test_krum_breaks_ties_by_the_lowest_index() -> None:
    e = leap(Krum(f=1), [[0.0], [1.0], [2.0], [3.0], [4.0]], (7.0,))
    assert e.state.server["w"].tolist() == [1.0]
