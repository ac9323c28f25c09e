"""Candidate sets that miss the true class: Eqs. 27-33 against a transcription, and what the method leaves alone."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from imperfed.core.components import RepairResult
from imperfed.core.context import ServerView, SiteView
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Updates
from imperfed.core.federation import Federation
from imperfed.core.labels import Candidates, Exact
from imperfed.engine.conversation import repair_labels
from imperfed.repairs import repairs
from imperfed.repairs.fb_nll import FBNLL
from imperfed.repairs.posterior import PosteriorRepair, SetPosterior, set_posterior, suited
from imperfed.repairs.posterior.set_model import (
    SetFit,
    SetModel,
    by_size,
    misses,
    outside_mass,
    posterior_of_sets,
    site_misses,
)
from tests.support import sets_by_hand
from tests.support.posterior_by_hand import unit

C = 4
S = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]], dtype=torch.bool)
R = torch.tensor(
    [[3, 0.5, 0.4, 0.1], [0.2, 0.3, 0.5, 3], [1, 1, 1, 1], [2, 0.1, 0.9, 1], [0.5, 2.5, 0.5, 0.5], [2, 1, 0.5, 0.5]],
    dtype=torch.float64,
)
E = torch.tensor([[0.3, 0.05, 0.2, 0.4, 0.0]], dtype=torch.float64)
PI = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64)


def test_the_posterior_of_six_sets() -> None:
    Q, likelihood = posterior_of_sets(R[None], E, PI, S)
    found = sets_by_hand.weights(R.numpy(), E[0].numpy(), PI[0].numpy(), S.numpy())
    assert np.allclose(Q[0], unit(found), rtol=1e-12)
    assert np.allclose(likelihood[0], np.log(found.sum(1) + 1e-12), rtol=1e-12)
    # The second row: 0.08 and 0.09 times 0.8 / 2 inside its set, 0.1 and 0.3 times 0.2 / 2 outside.
    assert outside_mass(Q, S)[0, 1] == pytest.approx(0.04 / 0.108)
    assert outside_mass(Q, S)[0, 4] == 0  # a set of all classes misses none


def test_one_step_at_the_server() -> None:
    Q, _ = posterior_of_sets(R[None], E, PI, S)
    sums = [dict(zip(("missed", "rows"), misses(Q[:, part], S[part]), strict=True)) for part in (slice(4), slice(4, 6))]
    answers = tuple(one | {"sets": by_size(S[part])} for one, part in zip(sums, (slice(4), slice(4, 6)), strict=True))
    found = SetModel(C).pool({}, Updates((0, 1), torch.tensor([4.0, 2.0]), {}, answers), ServerView())
    missed = sum(float(outside_mass(Q, S)[0, i]) for i in (0, 1, 2, 3, 5))
    e, pi = sets_by_hand.again(Q[0].numpy(), S.numpy(), np.full(C + 1, (missed + 0.1) / 6))
    assert np.allclose(found["e"][0, 1:], e[1:], rtol=1e-12)
    assert np.allclose(found["pi"][0], pi, rtol=1e-12)


def test_what_sites_claim_is_no_more_than_there_is() -> None:
    answer = {"missed": torch.full((1, C + 1), 9e9), "rows": torch.ones(1, C), "sets": torch.ones(C + 1)}
    found = SetModel(C).pool({}, Updates((0,), torch.tensor([5.0]), {}, (answer,)), ServerView())
    assert found["e"].max() <= 1.01
    assert found["e"][0, -1] == 0


def test_a_site_stays_near_the_others() -> None:
    e, pi = site_misses(R[None], E, PI, S, 7)
    own, shares = E[0].numpy(), PI[0].numpy()
    for _ in range(7):
        Q = unit(sets_by_hand.weights(R.numpy(), own, shares, S.numpy()))
        own, shares = sets_by_hand.again(Q, S.numpy(), E[0].numpy())
    assert np.allclose(e[0, 1:], own[1:], rtol=1e-10)
    assert np.allclose(pi[0], shares, rtol=1e-10)


def test_the_likelihood_by_which_a_temperature_is_chosen() -> None:
    down = {"temperatures": torch.ones(1).double(), "mean p": PI, "e": E, "pi": PI}
    sums = SetModel(C).likelihoods(SiteView(0, R, Candidates(S, C), down, {"logits": (R * PI[0]).log()}))
    ratios = R / (R * PI[0]).sum(1, keepdim=True)
    _, each = sets_by_hand.at_site(ratios.numpy(), S.numpy(), E[0].numpy(), PI[0].numpy(), 10)
    assert float(sums["log-likelihood"][0]) == pytest.approx(each.sum(), rel=1e-9)


def test_the_first_targets_are_equal_shares() -> None:
    targets = SetFit("raw", C).first_targets(Candidates(S, C))
    half, third = 1 / 2, 1 / 3
    expected = torch.tensor([[1, 0, 0, 0], [half, half, 0, 0], [0, half, half, 0], [third, third, third, 0]])
    assert torch.allclose(targets[:4], expected.double(), atol=1e-7)


# -- the whole method --------------------------------------------------------------------------------------------------

ROWS = 90
MISS = range(0, 45, 7)
"""The rows whose set lacks their class, all of them at the first site."""


def made(sets: torch.Tensor) -> Federation:
    names = tuple(map(str, range(ROWS)))
    return Federation("made", X, Candidates(sets, 3), (0, 45, ROWS), ("s", "t"), ("a", "b", "c"), names, X[:0])


i = torch.arange(ROWS).double()
Y = torch.arange(ROWS) % 3
X = torch.stack([(2.1 * Y).cos() + 0.3 * (i * i).sin(), (2.1 * Y).sin() + 0.3 * (3 * i * i).cos(), (5 * i).sin()], 1)
RIGHT = torch.nn.functional.one_hot(Y, 3).bool() | torch.nn.functional.one_hot((Y + i.long() // 3 % 3) % 3, 3).bool()
GIVEN = RIGHT.clone()
GIVEN[list(MISS)] = torch.nn.functional.one_hot((Y[list(MISS)] + 1) % 3, 3).bool()


@cache
def ranked(right: bool = False) -> RepairResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_posterior, "FITS", 2)
        return repair_labels(SetPosterior(features="raw"), made(RIGHT if right else GIVEN))[1]


def test_the_whole_method_is_that_of_the_equations() -> None:
    Q = torch.cat([decision.posterior for decision in ranked().decisions if decision.posterior is not None])
    site = np.repeat([0, 1], 45)
    assert np.allclose(Q, sets_by_hand.whole(X.numpy(), GIVEN.numpy(), site, 2), atol=1e-8)
    assert ranked().noise == tuple(pytest.approx(float((Q * ~GIVEN).sum(1)[site == k].mean())) for k in (0, 1))


def test_sets_without_their_class_come_first_and_none_is_changed() -> None:
    found = ranked()
    assert torch.equal(found.decided, GIVEN)
    Q = torch.cat([decision.posterior for decision in found.decisions if decision.posterior is not None])
    worst = (Q * ~GIVEN).sum(1).argsort(descending=True)[: len(MISS)]
    assert sorted(worst.tolist()) == list(MISS)
    assert torch.equal(Q[worst].argmax(1), Y[worst])
    assert found.reason[0] == "a class outside is more probable; the most probable candidate is b"
    assert found.reason[1] == "the most probable class is a candidate"
    north, south = (decision.noise for decision in found.decisions)
    assert north > 0.05 > 0.02 > south


def test_sets_that_miss_nothing() -> None:
    assert max(share for share in ranked(right=True).noise if share is not None) < 0.01
    assert set(ranked(right=True).reason) == {"the most probable class is a candidate"}


def test_the_verdict_is_how_often_the_features_hit() -> None:
    verdict = ranked().verdict
    assert verdict is not None
    assert verdict.alone == ()
    chance = float(GIVEN.double().mean())
    assert verdict.figures["clear"] == pytest.approx((verdict.figures["agreement"] - chance) / (1 - chance))
    nothing = SetPosterior().verdict({"hit": torch.tensor(0.6), "chance": torch.tensor(0.5)}, ("s", "t"))
    assert nothing.alone == ("s", "t")
    assert nothing.figures["clear"] == pytest.approx(0.2)


def test_only_sums_leave_a_site() -> None:
    listed = {"n", "sum x", "sum x^2", "sum z z^T", "sum a a^T", "gradients", "hit", "chance", "sum p", "missed"}
    assert ranked().sent.keys() == listed | {"rows", "sets", "log-likelihood", "changed", "noise"}
    assert all(ROWS // 2 not in shape for shape in ranked().sent.values())


def test_which_form_judges_what() -> None:
    repair = PosteriorRepair(features="raw", insist=True)
    assert suited(repair, Exact) is repair
    assert suited(repair, Candidates) == SetPosterior(features="raw", insist=True)
    other = FBNLL()
    assert suited(other, Candidates) is other
    assert SetPosterior not in repairs().values()  # in a run there is nothing to repair
    with pytest.raises(UsageError, match="not candidate sets"):
        SetPosterior().check(Federation("e", X, Exact(Y, 3), (0, ROWS), ("s",), ("a", "b", "c"), ("",) * ROWS, X[:0]))


def test_trusted_rows_are_not_used() -> None:
    assert not SetPosterior().uses(True)
    assert len(SetPosterior().exchanges(("a", "b"), True)) == len(SetPosterior().exchanges(("a", "b"), False))


def test_a_site_says_nothing_of_single_rows() -> None:
    memory, down = {"A": torch.ones(ROWS, 4).double()}, {"W": torch.zeros(5, 4, 3).double()}
    view = SiteView(0, X, Candidates(GIVEN, 3), down, memory)
    hits = set_posterior.count_hits(view)
    assert {name: t.numel() for name, t in hits.items()} == {"hit": 1, "chance": 1}
    assert float(hits["hit"]) == float(GIVEN[:, 0].sum())
    assert float(hits["chance"]) == pytest.approx(float(GIVEN.double().mean(1).sum()))
