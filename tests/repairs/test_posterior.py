"""Posterior repair: worked figures, every equation against a transcription, what travels, and whole runs."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from imperfed.core.components import LabelDecision, RepairResult
from imperfed.core.context import SiteView
from imperfed.core.errors import UsageError
from imperfed.core.federation import Federation, Trusted
from imperfed.core.labels import Candidates, Exact, Probabilities
from imperfed.engine.conversation import ask_here, conduct, exchanges_of, repair_labels, views
from imperfed.repairs.posterior import PosteriorRepair
from imperfed.repairs.posterior.cross_fit import Descent, fit
from imperfed.repairs.posterior.gates import THRESHOLDS, LeadGate, net_gain, threshold, upper_bound
from imperfed.repairs.posterior.noise_model import (
    TEMPERATURES,
    NoiseModel,
    best_temperature,
    expected,
    joint,
    leads,
    log_likelihood,
    pooled_noise,
    posterior,
    ratio,
    site_noise,
    start_noise,
    tempered,
)
from tests.support import posterior_by_hand as by_hand
from tests.support.posterior_by_hand import TAUS, ByHand, H

RAW = PosteriorRepair(features="raw", insist=True)
"""The method of the equations alone, without the check of the features, which so few rows seldom pass."""


def near(digits: int = 6) -> dict[str, float]:
    """To so many digits after the point."""
    return {"rtol": 0, "atol": 0.51 * 10**-digits}


def close(found: Tensor, *figures: Any) -> bool:
    return bool(np.allclose(found.numpy(), np.array(figures).reshape(found.shape), **near()))


# -- a: a fit of four rows ---------------------------------------------------------------------------------------------


def test_a_fit_of_four_rows() -> None:
    A = torch.tensor([[0.0, 1], [1, 1], [2, 1], [3, 1]]).double()
    y = torch.eye(2).double()[[0, 0, 1, 1]]
    W = fit(A, y, torch.ones(4, 1).double(), 0.1)
    assert close(W, -1.011258, 1.011258, 1.516887, -1.516887)


# -- b: six rows at two sites ------------------------------------------------------------------------------------------

LOGITS = torch.tensor([[2.0, 0], [1, 0], [0, 1], [0, 2], [2, 0], [0, 1]]).double()
G, Y = torch.tensor([0, 0, 1, 1, 1, 0]), torch.tensor([0, 0, 1, 1, 0, 1])
SITES = (slice(0, 3), slice(3, 6))


@cache
def six_rows() -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """R of all rows, T and pi of both sites, J of each."""
    p = tempered(LOGITS, torch.ones(1).double())
    R, noise = ratio(p, p.mean(1)), start_noise(1, 2)
    assert close(p.mean(1), 0.524956, 0.475044)
    for _ in range(30):
        noise = pooled_noise(expected(posterior(R, joint(noise["T"], noise["pi"]), G), G))
    T, pi = noise["T"][0], noise["pi"][0]
    return R[0], T, pi, [site_noise(R[0, rows], G[rows], T, pi, 30) for rows in SITES]


def test_noise_of_six_rows() -> None:
    R, T, pi, J = six_rows()
    assert close(R[0], 1.677848, 0.250930)
    assert close(T, 0.855356, 0.144644, 0.021163, 0.978837)
    assert close(pi, 0.574383, 0.425617)
    assert close(J[0], 0.542207, 0.067331, 0.007439, 0.383022)
    assert close(J[1], 0.397170, 0.102724, 0.016826, 0.483280)


def test_posteriors_of_six_rows() -> None:
    R, _, _, J = six_rows()
    Q = torch.cat([posterior(R[rows], J[k], G[rows]) for k, rows in enumerate(SITES)])
    assert close(Q[:, 0], 0.997952, 0.994453, 0.055285, 0.025371, 0.586990, 0.887110)
    likelihoods = torch.cat([log_likelihood(R[rows], J[k], G[rows]) for k, rows in enumerate(SITES)])
    assert close(likelihoods, -0.092546, -0.275367, -0.471702, -0.084040, -1.225453, -1.472425)
    assert close(leads(Q, G), 0, 0, 0, 0, 0.351538, 0)
    nu = [float((1 - Q[rows].gather(1, G[rows, None])).mean()) for rows in SITES]
    assert nu == [pytest.approx(0.020960, abs=5e-7), pytest.approx(0.241750, abs=5e-7)]
    assert [threshold(one) for one in nu] == [np.inf, 0]
    changed = torch.cat([leads(Q[rows], G[rows]) > threshold(one) for rows, one in zip(SITES, nu, strict=True)])
    assert changed.nonzero().flatten().tolist() == [4]


def test_no_site_may_change_where_clean_rows_would_be_harmed() -> None:
    R, _, _, J = six_rows()
    lead = [leads(posterior(R[rows], J[k], G[rows]), G[rows]) for k, rows in enumerate(SITES)]
    nets = [net_gain(lead[k], J[k], R, Y) for k in range(2)]
    best = int((3 * nets[0] + 3 * nets[1]).argmax())
    assert THRESHOLDS[best] == pytest.approx(0.352134, abs=5e-7)
    assert not any(float(net[best]) > 0 for net in nets)


# -- the constants -----------------------------------------------------------------------------------------------------


def test_temperatures_and_thresholds() -> None:
    assert np.allclose(TEMPERATURES, TAUS, rtol=1e-12)
    assert np.allclose(THRESHOLDS, H, rtol=1e-12)


@pytest.mark.parametrize(
    ("noise", "h"), [(0.0299, np.inf), (0.03, 1.7), (0.1, 1.0), (0.15, 0.5), (0.2, 0.0), (0.5, 0.0)]
)
def test_the_lead_asked_for_without_clean_rows(noise: float, h: float) -> None:
    assert threshold(noise) == pytest.approx(h)


def test_the_bound_on_damage_is_a_quantile_of_a_beta_distribution() -> None:
    bound = upper_bound(torch.tensor([0.0, 0.1, 1.0]).double(), torch.tensor(20.0).double())
    assert float(bound[0]) == pytest.approx(1 - 0.1 ** (1 / 20))  # Beta(1, 20)
    below = sum(math.comb(20, j) * bound[1] ** j * (1 - bound[1]) ** (20 - j) for j in range(3))
    assert float(below) == pytest.approx(0.1)  # Beta(3, 18): 0.9 of it lies where 20 draws hit 3 times or more
    assert float(bound[2]) == pytest.approx(1)


def test_the_temperature_of_clean_rows() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(400, 3, generator=draw).double()
    y = torch.multinomial(torch.softmax(logits / 2, -1), 1, generator=draw).flatten()
    assert float(best_temperature(logits, y)) == pytest.approx(2, abs=0.4)


# -- c: the whole method -----------------------------------------------------------------------------------------------


def rows_of_formula(i: Tensor) -> tuple[Tensor, Tensor]:
    i = i.double()
    y = i % 3
    x = [(2.1 * y).cos() + 0.4 * (i * i).sin(), (2.1 * y).sin() + 0.4 * (3 * i * i).cos(), (5 * i).sin()]
    return torch.stack(x, 1), y.long()


X, TRUTH = rows_of_formula(torch.arange(60))
WRONG = torch.arange(60) % 7 == 0
GIVEN = torch.where(WRONG, (TRUTH + 1) % 3, TRUTH)


def formula(given: Tensor, clean: bool) -> Federation:
    x, y = rows_of_formula(torch.arange(60, 90))
    trusted = Trusted(x, Exact(y, 3)) if clean else None
    ids = tuple(map(str, range(60)))
    return Federation(
        "formula", X, Exact(given, 3), (0, 30, 60), ("s", "t"), ("a", "b", "c"), ids, X[:0], trusted=trusted
    )


@cache
def repaired(clean: bool) -> RepairResult:
    return repair_labels(RAW, formula(GIVEN, clean))[1]


def test_the_whole_method_without_clean_rows() -> None:
    found = repaired(clean=False)
    assert torch.equal(found.decided, TRUTH)
    assert (found.decided != GIVEN).nonzero().flatten().tolist() == list(range(0, 60, 7))
    assert found.decisions[0].posterior is not None
    assert close(found.decisions[0].posterior[0], 0.994798, 0.005202, 0.000000)
    assert found.noise == (pytest.approx(0.166371, abs=5e-7), pytest.approx(0.130238, abs=5e-7))


def test_the_whole_method_with_clean_rows() -> None:
    found = repaired(clean=True)
    assert (found.decided != GIVEN).nonzero().flatten().tolist() == [0, 7, 14, 21, 28]
    assert torch.equal(found.decided[:30], TRUTH[:30])
    assert (found.reason[0], found.reason[1]) == ("a is more probable", "the most probable label")  # h* is 0
    assert found.reason[35] == "c is more probable, but this site is left alone"
    assert found.decisions[0].posterior is not None
    assert close(found.decisions[0].posterior[0], 0.992325, 0.007675, 0.000000)


def test_a_label_is_as_sure_as_its_posterior_and_says_why_it_stands() -> None:
    federation, _ = hard(0)
    _, found = repair_labels(RAW, federation)
    changed = found.decided != federation.labels.values
    assert changed.any()
    Q = torch.cat([decision.posterior for decision in found.decisions if decision.posterior is not None])
    confidence = torch.cat([decision.confidence for decision in found.decisions])
    torch.testing.assert_close(confidence, Q[torch.arange(98), found.decided].float())
    best = Q.argmax(1)
    for i, reason in enumerate(found.reason):
        if best[i] == federation.labels.values[i]:
            assert reason == "the most probable label"
        else:
            assert reason.startswith(f"{'abcd'[best[i]]} is more probable")
            assert reason.endswith("is more probable") == bool(changed[i])


def test_clean_rows_bear_the_worked_example_out() -> None:
    """Nobody needs to insist: the changes are those of the equations alone."""
    _, found = repair_labels(replace(RAW, insist=False), formula(GIVEN, clean=True))
    assert torch.equal(found.decided, repaired(clean=True).decided)


@pytest.mark.parametrize("clean", [False, True])
def test_right_labels_are_left_as_they_are(clean: bool) -> None:
    given = formula(TRUTH, clean)
    mended, found = repair_labels(RAW, given)
    assert mended.labels is given.labels
    assert set(found.reason) == {"the most probable label"}


def test_clean_rows_can_be_ignored() -> None:
    without, found = repaired(clean=False), repair_labels(replace(RAW, clean_rows="ignore"), formula(GIVEN, True))[1]
    assert torch.equal(found.decided, without.decided)
    assert "log-likelihood" in found.sent


def test_sites_side_by_side_have_the_bits_of_one_after_the_other() -> None:
    """Sums of a few hundred rows are added up in as many parts as there are threads, unless each site has one."""
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(1350, 16, generator=draw), torch.arange(1350) % 10
    x[:, :10] += 2 * torch.nn.functional.one_hot(y, 10)
    ids, classes = tuple(map(str, range(1350))), tuple("abcdefghij")
    sites = Federation("made", x, Exact(y, 10), (0, 450, 900, 1350), ("s", "t", "u"), classes, ids, x[:0])
    side_by_side = [decision.posterior for decision in repair_labels(RAW, sites)[1].decisions]
    alone = views(sites)
    conduct(RAW, sites, ask_here(exchanges_of(RAW, sites), alone))
    for ours, site in zip(side_by_side, alone, strict=True):
        theirs = LabelDecision.of(site.memory).posterior
        assert ours is not None
        assert theirs is not None
        assert torch.equal(ours, theirs)


# -- against the transcription -----------------------------------------------------------------------------------------


def hard(clean: int) -> tuple[Federation, ByHand]:
    """Three unequal sites, four overlapping classes, features on all scales, noise of its own at every site."""
    draw = np.random.default_rng(3)
    sizes, C = (33, 24, 41), 4
    site = np.repeat(np.arange(3), sizes)
    y = draw.integers(C, size=98 + clean)
    x = draw.normal(size=(C, 6))[y] + 0.9 * draw.normal(size=(98 + clean, 6))
    x = x * np.array([1, 30, 0.2, 1, 5, 1]) + np.array([0, 9, 0, -3, 0, 1])
    wrong = draw.random(98) < np.array([0.05, 0.3, 0.45])[site]
    g = np.where(wrong, (y[:98] + draw.integers(1, C, size=98)) % C, y[:98])
    names = tuple("abcd")
    trusted = Trusted(torch.from_numpy(x[98:]), Exact(torch.from_numpy(y[98:]), C)) if clean else None
    sites = Federation(
        "hard",
        torch.from_numpy(x[:98]),
        Exact(torch.from_numpy(g), C),
        (0, 33, 57, 98),
        ("one", "two", "three"),
        names,
        tuple(map(str, range(98))),
        torch.empty(0, 6),
        trusted=trusted,
    )
    hand = ByHand(x[:98], g, site, C, *((x[98:], y[98:]) if clean else ()))
    return sites, hand


@pytest.mark.parametrize("clean", [0, 43])
def test_every_step_is_that_of_the_equations(clean: int) -> None:
    federation, hand = hard(clean)
    _, found = repair_labels(RAW, federation)
    Q, Js, after = hand.with_clean() if clean else hand.without()
    for k, decision in enumerate(found.decisions):
        assert decision.posterior is not None
        assert decision.joint is not None
        assert np.allclose(decision.posterior, Q[hand.site == k], atol=1e-7)
        assert np.allclose(decision.joint, Js[k], atol=1e-7)
        assert decision.noise == pytest.approx(float((1 - Q[hand.site == k, hand.g[hand.site == k]]).mean()), abs=1e-7)
    assert 5 < (after != hand.g).sum() < 40
    assert found.decided.tolist() == after.tolist()


def test_gains_of_a_site_are_those_of_the_equations() -> None:
    draw = np.random.default_rng(1)
    J, R, y, g = draw.random((3, 3)) + 2 * np.eye(3), draw.random((50, 3)), draw.integers(3, size=50), np.arange(40) % 3
    J, Q = J / J.sum(), draw.dirichlet([1, 1, 1], 40)
    y[:20] = 0
    lead = leads(torch.from_numpy(Q), torch.from_numpy(g))
    wanted = by_hand.net(lead.numpy(), J, R, y)
    memory = {"Q": torch.from_numpy(Q), "J": torch.from_numpy(J)}
    down = {"R": torch.from_numpy(R), "y": torch.from_numpy(y)}
    sent = LeadGate().gains(SiteView(0, torch.empty(40, 0), Exact(torch.from_numpy(g), 3), down, memory))
    assert np.allclose(memory["net"], wanted)
    assert np.allclose(sent["net"], 40 * wanted)


def test_likelihoods_in_a_search_are_those_of_the_equations() -> None:
    _, hand = hard(0)
    site, logits = hand.site == 1, np.random.default_rng(2).normal(size=(98, 4))
    p = by_hand.softmax(logits)
    T, pi = hand.pooled(p / p.mean(0), 15)
    wanted = hand.at_sites(p / (p.mean(0) + 1e-12), T, pi, 10)[2][site].sum()
    down = {"temperatures": np.ones(1), "mean p": p.mean(0)[None], "T": T[None], "pi": pi[None]}
    tree = {name: torch.from_numpy(values) for name, values in down.items()}
    labels, memory = Exact(torch.from_numpy(hand.g[site]), 4), {"logits": torch.from_numpy(logits[site])}
    sent = NoiseModel(4, clean=False).likelihoods(SiteView(1, torch.empty(24, 0), labels, tree, memory))
    assert float(sent["log-likelihood"]) == pytest.approx(wanted, abs=1e-9)


def test_the_bound_on_the_curvature() -> None:
    L = Descent.of(torch.zeros(2, 2).double(), torch.tensor(0.5)).factor
    assert torch.allclose(L @ L.T, torch.tensor([0.5 + 1e-6, 1e-6], dtype=torch.float64).diag(), rtol=1e-9, atol=0)


# -- what travels ------------------------------------------------------------------------------------------------------

D, P, C = 3, 4, 3
SUMS = {
    "n": (),
    "sum x": (D,),
    "sum x^2": (D,),
    "sum z z^T": (D, D),
    "sum a a^T": (P, P),
    "gradients": (5, P, C),
    "predicted": (),
    "surest": (),
    "contradicted": (),
    "doubted": (),
}
CLAIMS: dict[str, tuple[int, ...]] = {"changed": (), "noise": ()}


def test_nothing_but_sums_leaves_a_site() -> None:
    assert repaired(clean=False).sent == SUMS | CLAIMS | {
        "sum p": (12, C),
        "N": (12, C, C),
        "log-likelihood": (12,),
    }
    beside_clean: dict[str, tuple[int, ...]] = {"denied": (), "sureness": (2,), "changes": (), "labels": (C,)}
    gate = {"sum p": (1, C), "N": (1, C, C), "net": (41,)}
    assert repaired(clean=True).sent == SUMS | CLAIMS | gate | beside_clean


def test_what_is_sent_is_a_sum_over_rows() -> None:
    """A site whose rows stand there in another order, fold by fold, sends the same; only its rows' order is its own."""
    given, order = formula(GIVEN, clean=False), torch.arange(60)
    order[:30] = torch.tensor([5 * ((i // 5 + 1) % 6) + i % 5 for i in range(30)])  # each row stays in its fold
    other = replace(given, x=given.x[order], labels=Exact(GIVEN[order], 3))
    one, two = repaired(clean=False), repair_labels(RAW, other)[1]
    assert one.sent == two.sent
    assert one.decisions[1].posterior is not None
    assert two.decisions[1].posterior is not None
    assert torch.allclose(one.decisions[1].posterior, two.decisions[1].posterior, atol=1e-9)


@pytest.mark.parametrize("clean", [False, True])
def test_the_exchanges_are_those_of_the_table(clean: bool) -> None:
    names = [exchange.name for exchange in RAW.exchanges(("a", "b"), trusted=clean)]
    fitted, estimate = ["probe"] * 50, ["mean", *["noise"] * 30, "posterior"]
    begin = ["moments", "directions", "curvature", *fitted, "witness"]
    searched = ["mean", *["noise"] * 15, "temperature", *["noise"] * 30, "posterior"]
    if clean:
        assert names == [*begin, *estimate, *(fitted + estimate) * 2, "gate", "support"]
    else:
        assert names == [*begin, *searched, *(fitted + searched) * 2, "support"]


# -- decisions, labels and refusals ------------------------------------------------------------------------------------


def test_a_label_in_doubt_is_kept_and_the_reason_says_so() -> None:
    federation, _ = hard(0)
    _, found = repair_labels(RAW, federation)
    reasons = {reason.replace(name, "_", 1) for reason in found.reason for name in "abcd" if reason.startswith(name)}
    assert "_ is more probable" in reasons
    left = repair_labels(RAW, formula(torch.where(torch.arange(60) == 0, 1, TRUTH), clean=False))[1]
    assert left.noise[0] is not None
    assert left.noise[0] > 0.03
    assert left.reason[0] == "a is more probable"


def test_probabilities_are_handed_over_where_training_asks_for_them() -> None:
    mended, found = repair_labels(RAW, formula(GIVEN, clean=False), Probabilities)
    assert isinstance(mended.labels, Probabilities)
    Q = torch.cat([decision.posterior for decision in found.decisions if decision.posterior is not None])
    assert torch.equal(mended.labels.values, Q.float())
    mended.check()


def test_bad_settings_and_other_labels_are_refused() -> None:
    with pytest.raises(UsageError, match=r"repair\.features = raw"):
        repair_labels(replace(RAW, features="pca"), formula(GIVEN, clean=True))
    sets = Candidates(torch.ones(60, 3, dtype=torch.bool), 3)
    with pytest.raises(UsageError, match="corrects exact labels; the sites hold candidates"):
        repair_labels(RAW, replace(formula(GIVEN, clean=False), labels=sets))
