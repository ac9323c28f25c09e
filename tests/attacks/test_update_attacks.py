"""Attacks on updates: what is sent, by hand; whose; and that each defence meets the attack it was made for."""

from __future__ import annotations

import pytest
import torch

from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.local_only import LocalOnly
from imperfed.algorithms.pooled import Pooled
from imperfed.attacks.alie import ALIE, reach
from imperfed.attacks.ipm import IPM
from imperfed.attacks.scaled import Scaled
from imperfed.attacks.sign_flip import SignFlip
from imperfed.core.components import Adversaries, Defence, UpdateAttack
from imperfed.core.components.attack import draw_adversaries
from imperfed.core.errors import UsageError
from imperfed.core.labels import Exact
from imperfed.defences.bulyan import Bulyan
from imperfed.defences.fltrust import FLTrust
from imperfed.defences.krum import Krum, MultiKrum
from imperfed.defences.median import Median
from imperfed.defences.rfa import RFA
from imperfed.defences.trimmed_mean import TrimmedMean
from imperfed.engine.engine import Engine
from imperfed.engine.local_training import Local
from imperfed.engine.schedule import RoundReport, Rounds
from imperfed.evaluation.evaluator import Evaluator
from imperfed.testing.toy import OneStep, Plain, Watched, network, world

OWN = torch.tensor([[1.0, -2.0], [3.0, 0.5]])
HONEST = torch.tensor([[2.0, 0.0], [4.0, 1.0], [0.0, -4.0]])  # mean (2, -1); deviations sqrt(8/3), sqrt(14/3)


def test_what_adversaries_send() -> None:
    assert SignFlip(strength=2).falsify(OWN, HONEST).tolist() == [[-2, 4], [-6, -1]]
    assert Scaled(boost=5).falsify(OWN, HONEST).tolist() == [[5, -10], [15, 2.5]]
    assert IPM(epsilon=0.5).falsify(OWN, HONEST).tolist() == [[-1, 0.5]] * 2
    shifted = [2 - 1.5 * (8 / 3) ** 0.5, -1 - 1.5 * (14 / 3) ** 0.5]
    assert ALIE(z=1.5).falsify(OWN, HONEST).tolist() == [pytest.approx(shifted, abs=1e-6)] * 2


def test_how_far_alie_reaches() -> None:
    # 50 sites, 24 adversaries: s = 26 - 24 = 2, Phi(z) = 24 / 26.
    assert reach(50, 24) == pytest.approx(1.4260768722, abs=1e-8)
    assert reach(10, 3) == pytest.approx(0.1800123698, abs=1e-8)  # s = 3, Phi(z) = 4 / 7
    assert reach(10, 1) == 0  # s = 5 of 9 honest sites: a shift would be seen
    assert reach(10, 7) > 4  # no honest site is needed
    by_number = HONEST.mean(0) - reach(5, 2) * HONEST.std(0, correction=0)
    torch.testing.assert_close(ALIE().falsify(OWN, HONEST)[0], by_number)


def attacked(
    attack: UpdateAttack | None, defence: Defence | None = None, sites: tuple[int, ...] = (1, 4), rounds: int = 1
) -> tuple[Watched, list[RoundReport]]:
    """Return a run of eleven sites, some of which falsify their updates, and its reports."""
    federation, oracle = world(Exact, (20, 24, 28, 22, 26, 21, 25, 27, 23, 29, 30))
    adversaries = None if attack is None else Adversaries(attack, sites)
    how, local = Rounds(rounds=rounds, workers=1), Local(steps=15, batch=16, lr=0.1)
    parts = (FedAvg(), Plain(), network(), federation, Evaluator(oracle), local, how, 0, defence)
    e = Watched(*parts, adversaries=adversaries)
    return e.go(), e.reports


def test_only_adversaries_weights_are_falsified_and_before_the_merge() -> None:
    honest, _ = attacked(None)
    start, n = network_row(), honest.seen[0].n
    moved = honest.seen[0]["w"] - start
    moved[[1, 4]] *= -3
    e, _ = attacked(SignFlip(strength=3))
    torch.testing.assert_close(e.state.server["w"], start + n / n.sum() @ moved, rtol=1e-5, atol=1e-6)


def network_row() -> torch.Tensor:
    net = network()
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def test_with_no_honest_site_on_duty_they_go_by_their_own() -> None:
    false = Adversaries(IPM(epsilon=2), (0, 1)).falsify((0, 1), torch.ones(2, 2), 1 + OWN)
    assert false.tolist() == [[1 - 4, 1 + 1.5]] * 2
    w = 1 + OWN
    assert Adversaries(IPM(), (5,)).falsify((0, 1), torch.ones(2, 2), w) is w
    assert Adversaries(IPM(), (1,)).falsify((0, 1), torch.ones(2, 2), w)[0].tolist() == [2, -1]
    assert torch.equal(w, 1 + OWN)  # what the sites have worked out stays as it is


def test_adversaries_are_numbered_in_order() -> None:
    drawn = [draw_adversaries(SignFlip(adversaries=4), 9, torch.Generator().manual_seed(s)) for s in range(20)]
    assert all(list(sites) == sorted(set(sites)) and len(sites) == 4 for sites in drawn)
    assert {k for sites in drawn for k in sites} == set(range(9))


LOUD, QUIET = SignFlip(strength=8), IPM(epsilon=8)
MANY = (0, 1, 2, 4, 6, 8)


@pytest.mark.parametrize(
    ("attack", "defence", "sites"),
    [
        (LOUD, Krum(adversaries=2), (1, 4)),
        (LOUD, MultiKrum(adversaries=2), (1, 4)),
        (QUIET, Median(adversaries=2), (1, 4)),
        (QUIET, TrimmedMean(adversaries=2), (1, 4)),
        (Scaled(boost=1e4), Bulyan(adversaries=2), (1, 4)),
        (Scaled(boost=1e4), RFA(adversaries=2), (1, 4)),
        (LOUD, RFA(adversaries=2), (1, 4)),
        (LOUD, FLTrust(), MANY),
        (IPM(epsilon=1), FLTrust(), MANY),
        (ALIE(z=40), TrimmedMean(adversaries=2), (1, 4)),
    ],
    ids=lambda part: getattr(part, "name", str(len(part)) if isinstance(part, tuple) else ""),
)
def test_each_defence_meets_its_attack(attack: UpdateAttack, defence: Defence, sites: tuple[int, ...]) -> None:
    def accuracy(defence: Defence | None) -> float:
        scores = attacked(attack, defence, sites, rounds=3)[1][-1].personal.values()
        return sum(score["accuracy"][0] for score in scores) / len(scores)

    assert accuracy(None) < 0.8
    assert accuracy(defence) > 0.9


def test_a_little_is_enough_against_the_trimmed_mean() -> None:
    """What ALIE is made for: its own default passes the rule, and still moves the model away from the honest mean."""
    federation_mean, _ = attacked(None, TrimmedMean(adversaries=4))
    shifted, _ = attacked(ALIE(), TrimmedMean(adversaries=4), (0, 1, 2, 4))
    away = shifted.state.server["w"] - federation_mean.state.server["w"]
    assert (away < 0).float().mean() > 0.7  # nearly every coordinate, in the direction of the shift


@pytest.mark.parametrize("algorithm", [Pooled(), LocalOnly(), OneStep()], ids=lambda a: a.name)
def test_where_no_update_is_sent_none_is_falsified(algorithm) -> None:
    federation, oracle = world(Exact)
    parts = (algorithm, Plain(), network(), federation, Evaluator(oracle), Local(), Rounds(workers=1), 0)
    with pytest.raises(UsageError, match=f"sign-flip falsifies the updates that sites send; under {algorithm.name}"):
        Engine(*parts, adversaries=Adversaries(SignFlip(), (1,)))
