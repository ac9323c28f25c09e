"""Every defence around algorithms that merge, remember and personalise in different ways."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from imperfed.core.algorithm import Algorithm
from imperfed.core.context import ServerContext
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Updates
from imperfed.core.labels import Exact
from imperfed.defences import defences
from imperfed.defences.bulyan import Bulyan
from imperfed.defences.fairfedpapl import FairFedPAPL
from imperfed.defences.fairfedpapl_placebo import FairFedPAPLOrPlacebo
from imperfed.defences.fltrust import FLTrust
from imperfed.defences.krum import Krum, MultiKrum, lowest, scores
from imperfed.defences.median import Median
from imperfed.defences.placebo import Placebo
from imperfed.defences.rfa import RFA
from imperfed.defences.trimmed_mean import TrimmedMean
from imperfed.testing.toy import Watched
from tests.support.fair_federation import SIZES, defended, federation
from tests.support.methods import algorithms, averaging, overriding

GREEN = {"target": "green", "unprivileged": "high"}
AT_ONCE = {"burn_in": 0, "first_decision": 1}
ALL = [
    *(Krum(), MultiKrum(), Median(), TrimmedMean(), Bulyan(), RFA(), FairFedPAPL(**GREEN)),
    *(Placebo(**GREEN, **AT_ONCE), FairFedPAPLOrPlacebo(**GREEN, **AT_ONCE)),
]
ADVERSARIES = (1, 4, 8)
AROUND = [averaging(), overriding("init_site", "init_server", kind=Exact)[0], *overriding("is_personal", "merge")]
"""Plain averaging, memories at server and sites, and personal parts."""


def test_all_are_found_by_name():
    assert sorted(d.name for d in (*ALL, FLTrust())) == list(defences())  # FLTrust: with rows at the server, elsewhere
    assert defences()["multi-krum"] is MultiKrum


@pytest.mark.parametrize("defence", ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("algorithm", AROUND, ids=lambda a: a.name)
def test_it_works_around(algorithm: Algorithm, defence):
    sets = algorithm.objective is not None
    data = federation(ADVERSARIES, sizes=tuple(range(24, 44, 2)), candidates=sets)
    e = defended(algorithm, defence, data, algorithm.objective, rounds=2)
    assert all(torch.isfinite(t).all() for t in e.state.server.values())
    again = defended(algorithm, defence, data, algorithm.objective, rounds=2)
    assert all(torch.equal(t, again.state.server[name]) for name, t in e.state.server.items())
    assert e.reports[-1].losses.keys() == set(range(10))


def last(defence, **rounds: float) -> tuple[Watched, torch.Tensor]:
    """A run of one round, and the weights it started from."""
    e = defended(averaging(), defence, federation(ADVERSARIES), rounds=1, **rounds)
    return e, e.seen[0]["w"]


def test_krum_takes_over_one_answer_whole():
    e, w = last(Krum())
    assert any(torch.equal(e.state.server["w"], row) for row in w)


def test_multi_krum_counts_the_kept_alike():
    e, w = last(MultiKrum(m=4))
    kept = lowest(scores(w, 10 - 3 - 2), 4)
    assert len(set(SIZES)) == 10
    torch.testing.assert_close(e.state.server["w"], w[kept].mean(0))


def test_multi_krum_of_one_is_krum():
    assert torch.equal(last(MultiKrum(m=1))[0].state.server["w"], last(Krum())[0].state.server["w"])


def test_median_and_trimmed_mean_hold_for_every_answer():
    e, w = last(Median())
    torch.testing.assert_close(e.state.server["w"], w.quantile(0.5, 0), rtol=1e-5, atol=1e-6)
    e, w = last(TrimmedMean(adversaries=2))
    torch.testing.assert_close(e.state.server["w"], w.sort(0).values[2:8].mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("defence", "sites"),
    [
        *((Krum(adversaries=4), 11), (Median(adversaries=5), 11), (TrimmedMean(adversaries=5), 11)),
        *((MultiKrum(m=8), 11), (Bulyan(adversaries=2), 11), (RFA(adversaries=5), 11)),
    ],
    ids=lambda v: getattr(v, "name", ""),
)
def test_too_few_sites_are_refused_before_the_first_round(defence, sites: int):
    with pytest.raises(UsageError, match=f"needs at least {sites} sites, and there are 10; set defence.adversaries"):
        last(defence)


def test_too_few_sites_on_duty_are_refused_before_the_first_round():
    words = "needs at least 9 sites in a round, and 5 take part; set .* rounds.participation higher"
    with pytest.raises(UsageError, match=words):
        last(Krum(), participation=0.5)
    last(Krum(adversaries=1), participation=0.5)


def test_every_group_must_have_sites_enough():
    told, oracle = federation()
    halves = replace(told, groups=(0, 1) * 5), oracle
    with pytest.raises(UsageError, match="needs at least 7 sites, and there are 5 in the smallest group"):
        defended(averaging(), Median(), halves, rounds=1)


def test_in_a_round_with_too_few_answers_none_is_let_through():
    _, w = last(None)
    told = ServerContext(None, w, 0, 0.1, torch.Generator())  # type: ignore[arg-type]
    five = Updates(tuple(range(5)), torch.ones(5), {"w": w[:5]})
    assert Krum(adversaries=2).inspect({}, {}, five, told)[0] is None
    assert told.notes == ["krum: 5 answers, but against 2 adversaries it needs 7"]


@pytest.mark.parametrize("algorithm", [a for a in algorithms(Exact) if a.not_mixable_because], ids=lambda a: a.name)
@pytest.mark.parametrize("defence", [Median(), TrimmedMean(), Bulyan(), RFA()], ids=lambda d: d.name)
def test_sites_that_do_not_answer_for_one_model_are_not_mixed(algorithm: Algorithm, defence):
    words = f"{defence.name} mixes all sites coordinate by coordinate, and under {algorithm.name} .*; use krum"
    with pytest.raises(UsageError, match=words):
        defended(algorithm, defence, federation(), rounds=1)


def test_bad_settings_are_refused():
    with pytest.raises(UsageError, match=r"defence\.adversaries"):
        Median(adversaries=-1)
    with pytest.raises(UsageError, match=r"defence\.m"):
        MultiKrum(m=-2)
