"""FairFedPAPL: the confidences by hand, and who is found on a small unfair federation."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import pytest
import torch
from torch import Tensor

from imperfed.core.context import ServerContext
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Updates
from imperfed.core.federation import Attribute
from imperfed.core.network import Layout, Net
from imperfed.defences.fairfedpapl import FairFedPAPL, evidence
from imperfed.nn.inversion import Reconstruction
from imperfed.testing.toy import Watched
from tests.support.fair_federation import CLASSES, GROUPS, SIZES, T, U, defended, federation, network
from tests.support.methods import averaging

GREEN = {"target": "green", "unprivileged": "high"}
ADVERSARIES = (1, 4, 8)


def a_hall(**parts) -> ServerContext:
    net = network()
    names = tuple(f"site-{k}" for k in range(10))
    known = {"classes": CLASSES, "attribute": Attribute("colour", GROUPS, 1), "sites": names} | parts
    return ServerContext(
        Net(net, Layout.of(net, lambda n: False)), torch.zeros(0, 8), 0, 0.05, torch.Generator(), **known
    )


@dataclass(frozen=True)
class Told(FairFedPAPL):
    """With scores that are told instead of computed."""

    def scores(self, sent, updates, context) -> Tensor:
        return updates["told"]


def inspected(defence: FairFedPAPL, memory, f: list[float], who: tuple[int, ...] | None = None):
    """One round with these scores: the sites kept, the new memory, the hall."""
    who, context = who or tuple(range(len(f))), a_hall()
    updates = Updates(who, torch.ones(len(f)), {"told": torch.tensor(f), "w": torch.zeros(len(f), 2)})
    kept, memory = defence.inspect(memory, {"w": torch.zeros(len(f), 2)}, updates, context)
    return (kept.who if kept else None), memory, context


CLEAR = [0.0, 0.1, 0.9, 0.1, 0.0, 0.2]
MIXED = [0.0, 0.4, 0.9, 0.1, 0.6, 0.2]


def test_a_split_moves_every_confidence_by_rho():
    kept, memory, context = inspected(Told(), Told().init_state(6), CLEAR)
    assert kept == (0, 1, 3, 4, 5)
    assert memory["q"].tolist() == pytest.approx([0.55, 0.55, 0.45, 0.55, 0.55, 0.55])
    assert context.notes == ["fairfedpapl looked: 1 of 6 sites above 0.550"]
    assert [(s.site, s.out) for s in context.verdicts] == [(k, k == 2) for k in range(6)]
    assert [s.score for s in context.verdicts] == pytest.approx(CLEAR)
    assert context.verdicts[2].confidence == pytest.approx(0.45)


def test_without_a_split_nothing_changes():
    kept, memory, context = inspected(Told(), Told().init_state(6), MIXED)
    assert kept == (0, 1, 2, 3, 4, 5)
    assert memory["q"].tolist() == [0.5] * 6
    assert "no split" in context.notes[0]
    assert "no split" in inspected(Told(), Told().init_state(6), [0.3] * 6)[2].notes[0]
    assert inspected(Told(guard="none"), Told().init_state(6), MIXED)[0] == (0, 1, 3, 5)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "the means are 0.246 apart, 0.3 is needed"),
        ({"gap": 0.2}, None),
        ({"gap": 0.2, "deviations": 12.0}, "12.00 are needed"),
        ({"guard": "distance"}, "are needed"),
        ({"guard": "distance", "level": 0.02}, None),
        ({"score": "path"}, "are needed"),
        ({"score": "path", "guard": "gap"}, "the means are 0.246 apart"),
        ({"guard": "law"}, "a group of 1 is below the minimum of 2"),
        ({"guard": "none"}, None),
    ],
)
def test_the_guards(settings, why: str | None):
    """Six scores whose highest is 11 deviations, but only 0.246, away from the others."""
    kept, _, context = inspected(Told(**settings), Told().init_state(6), [0.3 * f for f in CLEAR])
    assert kept == ((0, 1, 2, 3, 4, 5) if why else (0, 1, 3, 4, 5))
    assert (why or "1 of 6 sites above") in context.notes[0]


def test_scores_are_smoothed_over_the_rounds_in_which_a_site_has_one():
    memory = inspected(Told(), Told().init_state(6), CLEAR)[1]
    _, memory, context = inspected(Told(), memory, [1.0, 1.0, torch.nan, -1.0], (5, 1, 2, 3))
    expected = [0.0, 0.8 * 0.1 + 0.2, 0.9, 0.8 * 0.1 - 0.2, 0.0, 0.8 * 0.2 + 0.2]
    assert memory["f"].tolist() == pytest.approx(expected)
    assert memory["seen"].tolist() == [1, 2, 1, 2, 1, 2]
    assert "no score for site-2, left out of the split" in context.notes[-1]
    assert [s.score is None for s in context.verdicts] == [False, False, True, False]


def test_an_undefined_score_changes_no_confidence_and_is_not_zero():
    f = [0.0, 0.1, 0.9, 0.1, 0.0, torch.nan]
    kept, memory, _ = inspected(Told(), Told().init_state(6), f)
    assert kept == (0, 1, 3, 4, 5)
    assert memory["q"][5] == 0.5
    assert memory["seen"][5] == 0
    assert all(t.isfinite().all() for t in memory.values())
    nobody = inspected(Told(), Told().init_state(6), [torch.nan] * 6)
    assert nobody[0] == (0, 1, 2, 3, 4, 5)


def test_if_nobody_qualifies_no_answer_goes_through():
    memory = Told().init_state(6) | {"q": torch.full((6,), 0.3)}
    assert inspected(Told(), memory, MIXED)[0] is None


def test_a_site_left_out_comes_back_with_its_confidence():
    memory = Told().init_state(6)
    for f in (CLEAR, [0.0, 0.1, 0.1, 0.1, 0.0, 3.0]):
        kept, memory, _ = inspected(Told(smoothing=0.0), memory, f)
    assert kept == (0, 1, 2, 3, 4)
    assert memory["q"].tolist() == pytest.approx([0.595, 0.595, 0.505, 0.595, 0.595, 0.495])


DEFAULTS = {
    "target": "",
    "unprivileged": "",
    "variant": "ours",
    "score": "label",
    "dummy_rows": 100,
    "dummy_steps": 20,
    "dummy_lr": 0.1,
    "mu": 1e-4,
    "smoothing": 0.8,
    "guard": "",
    "deviations": 4.0,
    "gap": 0.3,
    "level": 0.01,
    "rho": 0.1,
    "theta_low": 0.1,
    "theta_high": 0.9,
    "kappa": 0.5,
    "freeze": "",
}


def test_the_settings_that_the_tables_were_made_with():
    assert asdict(FairFedPAPL()) == DEFAULTS


@pytest.mark.parametrize("variant", ["ours", "thesis"])
def test_what_is_turned_back_and_scored(variant: str, monkeypatch: pytest.MonkeyPatch):
    draw, context, asked = torch.Generator().manual_seed(0), a_hall(), []
    h, h_n = (torch.randn(6, len(context.net.w), generator=draw) for _ in range(2))
    x, z = torch.randn(6, 40, 8, generator=draw), torch.randn(6, 40, 3, generator=draw)
    made = Reconstruction(x, z.softmax(-1), torch.zeros(6))
    monkeypatch.setattr("imperfed.defences.fairfedpapl.fairfedpapl.invert", lambda *given: asked.append(given) or made)
    sent, trees = ({"w": w, "buffers": w[:, :0]} for w in (h, h_n))
    f = FairFedPAPL(variant=variant, **GREEN).scores(sent, Updates(tuple(range(6)), torch.ones(6), trees), context)
    [(_, at, _, v, *_)] = asked
    models = evidence.Ensemble(context.net, h_n, h_n[:, :0])
    if variant == "thesis":
        assert torch.equal(at, h_n)
        assert torch.equal(v, (h_n - h) / context.lr)
        assert torch.equal(f, evidence.opportunity(models, made, T, U))
    else:
        assert torch.equal(at, h)
        assert torch.equal(v, (h - h_n) / context.lr)
        assert torch.equal(f, evidence.label(made, T, U))
    assert f.isfinite().all()
    assert f.any()


Q = torch.tensor([0.05, 0.1, 0.4, 0.9, 0.95])
UP, DOWN = 0.9 * Q + 0.1, 0.9 * Q


@pytest.mark.parametrize(
    ("defence", "rises", "falls"),
    [
        (Told(), [2], [2, 3, 4]),
        (Told(freeze="both"), [2], [2]),
        (Told(freeze="clamp"), [0, 1, 2], [2, 3, 4]),
        (Told(variant="thesis"), [2], [2]),
        (Told(variant="thesis", freeze="clamp"), [0, 1, 2], [2, 3, 4]),
        (Told(variant="thesis", freeze="low"), [2], [2, 3, 4]),
    ],
)
def test_where_confidences_are_frozen(defence: FairFedPAPL, rises: list[int], falls: list[int]):
    for bad, moved, those in ((False, UP, rises), (True, DOWN, falls)):
        expected = Q.clone()
        expected[those] = moved[those]
        torch.testing.assert_close(defence.trust(Q, torch.full((5,), bad)), expected)


def test_the_thesis_splits_every_round_by_its_own_scores_and_wants_more_than_kappa():
    thesis = Told(variant="thesis")
    kept, memory, _ = inspected(thesis, thesis.init_state(6), MIXED)
    assert kept == (0, 1, 3, 5)
    assert inspected(thesis, memory, [0.0] * 6)[1]["f"].tolist() == [0.0] * 6
    assert inspected(thesis, thesis.init_state(6), [0.3] * 6)[0] is None  # all at kappa, none above


def suspicions(e: Watched, round: int) -> dict[int, float]:
    return {s.site: s.score for s in e.reports[round].verdicts}


def area(scores: dict[int, float], adversaries: tuple[int, ...]) -> float:
    """Share of the pairs of an adversary and an honest site in which the adversary's score is higher."""
    pairs = [(scores[a], scores[k]) for a in adversaries for k in scores if k not in adversaries]
    return sum(a > k for a, k in pairs) / len(pairs)


@pytest.mark.parametrize("score", ["label", "pool", "probe", "path"])
@pytest.mark.parametrize("seed", [0, 1])
def test_adversaries_are_found_and_nobody_else(score: str, seed: int):
    e = defended(averaging(), FairFedPAPL(score=score, **GREEN), federation(ADVERSARIES, seed), rounds=4)
    assert area(suspicions(e, 3), ADVERSARIES) > 0.9
    out = {s.site for s in e.reports[3].verdicts if s.out}
    assert out == set(ADVERSARIES)
    plain = defended(averaging(), None, federation(ADVERSARIES, seed), rounds=4)
    assert rate_of_u(e) < rate_of_u(plain) - 0.1


def rate_of_u(e: Watched) -> float:
    """The mean probability of class u that the model gives honest rows of the group."""
    net = e.population.load(0, e.state.server["w"], e.state.server["buffers"])
    x = e.population.federation.x
    return float(net(x[x[:, 2] == 1]).softmax(1)[:, 2].detach().mean())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_where_nobody_attacks_nobody_is_out(seed: int):
    e = defended(averaging(), FairFedPAPL(**GREEN), federation((), seed), rounds=8)
    assert not any(s.out for r in e.reports for s in r.verdicts)
    plain = defended(averaging(), None, federation((), seed), rounds=8)
    assert torch.equal(e.state.server["w"], plain.state.server["w"])


def test_the_thesiss_reading_runs_and_says_what_cosine_it_reached():
    e = defended(averaging(), FairFedPAPL(variant="thesis", **GREEN), federation(ADVERSARIES), rounds=2)
    assert any("cosine reached" in note for note in e.reports[0].notes)
    assert len(e.reports[0].verdicts) == len(SIZES)


def test_a_run_resumed_is_the_same_run(tmp_path):
    defence, data = FairFedPAPL(**GREEN), federation(ADVERSARIES)
    whole = defended(averaging(), defence, data, rounds=3)
    first = defended(averaging(), defence, data, rounds=2)
    first.state.save(tmp_path / "checkpoint")
    second = defended(averaging(), defence, data, rounds=3, resume=tmp_path / "checkpoint")
    assert all(torch.equal(t, second.state.server[name]) for name, t in whole.state.server.items())
    assert whole.state.server["defence/seen"].tolist() == [3] * len(SIZES)


def test_the_order_of_the_sites_does_not_matter():
    e = defended(averaging(), None, federation(ADVERSARIES), rounds=1)
    updates, order, defence = e.seen[0], torch.randperm(10), FairFedPAPL(**GREEN)
    start = network()
    w = Layout.of(start, lambda n: False).row(start)
    sent = {"w": w.expand(10, -1), "buffers": w[:0].expand(10, -1)}
    one, two = (defence.inspect(defence.init_state(10), sent, u, a_hall())[1] for u in (updates, updates.only(order)))
    for name, t in one.items():
        torch.testing.assert_close(two[name], t, rtol=1e-3, atol=1e-4)


def test_a_site_that_sends_the_model_back_has_no_score():
    e = defended(averaging(), None, federation(ADVERSARIES), rounds=1)
    start = network()
    w = Layout.of(start, lambda n: False).row(start)
    sent = {"w": w.repeat(10, 1), "buffers": w[:0].expand(10, -1)}
    sent["w"][3] = e.seen[0]["w"][3]  # which is not what the others were sent
    for score in ("label", "pool", "probe", "path"):
        f = FairFedPAPL(score=score, **GREEN).scores(sent, e.seen[0], a_hall())
        assert f.isnan().tolist() == [k == 3 for k in range(10)]


@pytest.mark.parametrize(
    ("settings", "parts", "message"),
    [
        (GREEN, {"attribute": None}, "no sensitive attribute"),
        ({}, {}, "set defence.target to one of red, green, blue and defence.unprivileged to one of low, medium, high"),
        ({"target": "green"}, {}, "set defence.unprivileged to one of low, medium, high"),
        (GREEN | {"target": "gren"}, {}, "Did you mean 'green'"),
        (GREEN | {"unprivileged": "hihg"}, {}, "Did you mean 'high'"),
    ],
)
def test_who_is_protected_must_be_said(settings, parts, message: str):
    told, oracle = federation()
    with pytest.raises(UsageError, match=message):
        defended(averaging(), FairFedPAPL(**settings), (replace(told, **parts), oracle))
    assert FairFedPAPL(**GREEN).roles(told.attribute, told.classes) == (2, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dummy_rows": 0}, "defence.dummy_rows"),
        ({"smoothing": 1.0}, "below 1"),
        ({"kappa": 0.7}, "confidences start at 0.5"),
    ],
)
def test_bad_settings_are_refused(settings, message: str):
    with pytest.raises(UsageError, match=message):
        FairFedPAPL(**settings)
