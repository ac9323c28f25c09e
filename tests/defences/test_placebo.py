"""The placebo contrast as a defence: what it asks, remembers and lets through, alone and beside FairFedPAPL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial

import pytest
import torch

from imperfed.core.context import ServerContext
from imperfed.core.errors import ImperfedError, UsageError
from imperfed.core.exchange import Updates
from imperfed.core.federation import Attribute
from imperfed.core.network import Layout, Net
from imperfed.defences.fairfedpapl import FairFedPAPL
from imperfed.defences.fairfedpapl_placebo import FairFedPAPLOrPlacebo, rows_counted
from imperfed.defences.placebo import Placebo
from imperfed.defences.placebo import placebo as module
from imperfed.defences.placebo.contrast import probe_rows
from imperfed.defences.protected import ProtectsGroup
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.evaluator import Evaluator
from imperfed.testing.toy import Plain, Watched, differences, one_by_one, step_by_step
from tests.defences.test_contrast import LEVELS, RISES, SHARES
from tests.support.fair_federation import CLASSES, GROUPS, LOCAL, defended, federation, network
from tests.support.methods import averaging

GREEN = {"target": "green", "unprivileged": "high"}
ADVERSARIES = (1, 4, 8)
FOUR = Attribute("colour", ("green", "red", "blue", "grey"), 1)
SOON = {"burn_in": 1, "first_decision": 3}
KINDS = [Placebo, partial(FairFedPAPLOrPlacebo, dummy_rows=10, dummy_steps=2)]


def a_hall(round: int, attribute: Attribute = FOUR, sites: int = 6) -> ServerContext:
    net, names = network(), tuple(f"site-{k}" for k in range(sites))
    known = {"classes": CLASSES, "attribute": attribute, "sites": names}
    layout = Layout.of(net, lambda n: False)
    return ServerContext(Net(net, layout), torch.zeros(0, 8), round, 0.05, torch.Generator(), **known)


@dataclass(frozen=True)
class Told(Placebo):
    """With the memory as it stands: no round adds to it."""

    def remember(self, memory, sent, updates, context):
        return memory


def remembered(rounds: float = 5.0) -> dict[str, torch.Tensor]:
    """The memory of six sites after so many rounds; all have the same shares."""
    memory = {"sum_q": rounds * RISES, "sum_m": rounds * LEVELS, "rounds": torch.full_like(LEVELS, rounds)}
    return memory | {"shares": SHARES.repeat(6, 1)}


def inspected(memory, round: int = 8, who: tuple[int, ...] = tuple(range(6)), **settings):
    """One round: the answers kept, the hall."""
    context = a_hall(round)
    w = torch.arange(2.0 * len(who)).view(-1, 2)
    updates = Updates(who, torch.arange(10.0, 10.0 + len(who)), {"w": w})
    kept, _ = Told(**(GREEN | settings)).inspect(memory, {"w": torch.zeros_like(w)}, updates, context)
    return kept, context


def test_the_settings_of_the_method():
    expected = {"target": "", "unprivileged": "", "burn_in": 3, "first_decision": 8, "probe_rows": 64, "alarm": 4.0}
    assert asdict(Placebo()) == expected


def test_a_site_counts_with_its_weight_times_its_rows():
    kept, context = inspected(remembered())
    assert kept.who == (0, 1, 2, 3, 5)
    assert kept.n.tolist() == pytest.approx([10, 11 * 0.228045, 12, 13, 15], rel=1e-5)
    assert kept["w"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [10, 11]]
    assert [(v.site, v.out) for v in context.verdicts] == [(k, k in (1, 4)) for k in range(6)]
    assert context.verdicts[4].score == pytest.approx(25.475516, abs=5.1e-7)
    assert context.verdicts[1].confidence == pytest.approx(0.228045, abs=5.1e-7)
    assert context.notes == ["placebo looked: highest score 25.48, 2 sites below their full weight"]


def test_nobody_is_judged_before_the_ninth_round():
    kept, context = inspected(remembered(), round=7)
    assert kept.n.tolist() == [10, 11, 12, 13, 14, 15]
    assert [(v.score, v.confidence, v.out) for v in context.verdicts] == [(None, 1.0, False)] * 6
    assert inspected(remembered(), round=7, first_decision=7)[0].who == (0, 1, 2, 3, 5)
    assert inspected(remembered(), round=0)[1].notes == ["placebo: no site loses weight before round 9"]


def test_scores_are_over_the_sites_that_answered():
    kept, context = inspected(remembered(), who=(0, 1, 2, 3, 5))
    assert kept.n.tolist() == [10, 11, 12, 13, 14]  # without the adversary there is no alarm
    assert max(v.score for v in context.verdicts) < 4
    kept, context = inspected(remembered(), who=(0, 2, 3, 4, 5))
    assert kept.who == (0, 2, 3, 5)
    assert [v.site for v in context.verdicts if v.out] == [4]


def test_a_site_without_a_mean_counts_fully_and_is_not_compared():
    memory = remembered()
    memory["rounds"][1] = 0.0
    kept, context = inspected(memory)
    _, other = inspected(remembered(), who=(0, 2, 3, 4, 5))
    assert kept.who == (0, 1, 2, 3, 5)
    assert kept.n[1] == 11
    assert context.verdicts[1].score is None
    others = [v.score for v in context.verdicts if v.site != 1]
    assert others == pytest.approx([v.score for v in other.verdicts])


def test_a_mean_is_over_the_rounds_of_the_site_itself():
    memory = remembered()
    for name in ("sum_q", "sum_m", "rounds"):
        memory[name][2] *= 3
    assert inspected(memory)[0].n.tolist() == inspected(remembered())[0].n.tolist()


def test_shares_are_medians_over_all_sites():
    """Also over site 3, which does not answer here."""
    there, various, alike = (0, 1, 2, 4, 5), remembered(), remembered()
    various["shares"][:, 1] = torch.tensor([0.3, 0.3, 0.9, 0.3, 0.6, 0.6])
    alike["shares"][:, 1] = 0.45
    (_, one), (_, two) = inspected(various, who=there), inspected(alike, who=there)
    assert [v.score for v in one.verdicts] == pytest.approx([v.score for v in two.verdicts])


def test_what_cannot_be_compared_is_left_alone():
    kept, context = inspected(remembered(), who=(1, 4, 5))
    assert kept.n.tolist() == [10, 11, 12]
    assert context.notes == ["placebo: 3 sites can be compared, and 4 are needed"]
    flat = remembered() | {"sum_q": torch.zeros(6, 4).double(), "sum_m": torch.zeros(6).double()}
    kept, context = inspected(flat)
    assert kept.n.tolist() == [10, 11, 12, 13, 14, 15]
    assert "do not vary between sites" in context.notes[0]
    assert [v.score for v in context.verdicts] == [None] * 6


# -- a round of real models --------------------------------------------------------------------------------------------

COLOURS = Attribute("colour", GROUPS, 1)


def a_round(round: int, still: tuple[int, ...] = (), who: tuple[int, ...] = (0, 1, 2, 3, 4)):
    """The memory after one round in which some sites sent back what they had received."""
    context, defence = a_hall(round, COLOURS), Placebo(**GREEN)
    h = context.net.w.detach().clone().expand(len(who), -1)
    moved = 0.1 * torch.randn(6, h.shape[1], generator=torch.Generator().manual_seed(3))[list(who)]
    moved[[row for row, site in enumerate(who) if site in still]] = 0.0
    trees = {"w": h + moved, "buffers": h[:, :0]}
    memory = defence.init_state(6) | {"shares": torch.full((6, 3), 0.5).double(), "sum_q": torch.zeros(6, 3).double()}
    return defence.inspect(memory, {"w": h, "buffers": h[:, :0]}, Updates(who, torch.ones(len(who)), trees), context)


def test_the_first_three_rounds_do_not_count():
    for round, counted in ((0, 0), (2, 0), (3, 1), (8, 1)):
        _, memory = a_round(round)
        assert memory["rounds"].tolist() == [counted] * 5 + [0]
        assert memory["sum_q"].any() == memory["sum_m"].any() == bool(counted)


def test_sites_are_remembered_by_their_numbers():
    _, whole = a_round(3)
    kept, some = a_round(3, who=(1, 4))
    assert kept.who == (1, 4)
    assert some["rounds"].tolist() == [0, 1, 0, 0, 1, 0]
    for name in ("sum_q", "sum_m"):
        torch.testing.assert_close(some[name][[1, 4]], whole[name][[1, 4]], rtol=1e-4, atol=1e-6)
        assert not some[name][[0, 2, 3, 5]].any()


def test_a_site_that_did_not_move_is_left_out_of_the_round():
    kept, memory = a_round(3, still=(2,))
    assert kept.who == (0, 1, 2, 3, 4)
    assert memory["rounds"].tolist() == [1, 1, 0, 1, 1, 0]
    assert all(t.isfinite().all() for t in memory.values())


def test_what_is_added_is_the_move_in_every_column(monkeypatch: pytest.MonkeyPatch):
    asked = []
    real = module.moves
    monkeypatch.setattr(module, "moves", lambda *given: asked.append(given) or real(*given))
    _, memory = a_round(5)
    [(net, sent, updates, probes, u)] = asked
    assert u == 2
    rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(probes, probe_rows(rows, slice(1, 4)))
    q, m = real(net, sent, updates, probes, u)
    assert torch.equal(memory["sum_q"][:5], q)
    assert torch.equal(memory["sum_m"][:5], m)


# -- the shares --------------------------------------------------------------------------------------------------------


def test_every_site_says_once_how_many_of_its_rows_name_each_group():
    data = federation(ADVERSARIES)
    e = defended(averaging(), Placebo(**GREEN), data, rounds=1)
    told = data[0]
    expected = [(told.x[a:b, 1:4] == 1).double().mean(0) for a, b in zip(told.starts, told.starts[1:], strict=False)]
    assert torch.equal(e.state.server["defence/shares"], torch.stack(expected))
    assert e.reports[0].sent["group shares"] == (3,)


@pytest.mark.parametrize("claim", [{}, {"group shares": torch.zeros(3)}, {"group shares": torch.full((4,), 1.5)}])
def test_a_claim_that_is_no_share_is_refused(claim):
    good = {"group shares": torch.full((4,), 0.5)}
    updates = Updates((0, 1), torch.ones(2), {}, (good, claim))
    with pytest.raises(ImperfedError, match=r"site-1: its shares of 4 groups are not 4 numbers in 0 .. 1"):
        Placebo(**GREEN).keep_shares({}, updates, a_hall(-1))


# -- whole runs --------------------------------------------------------------------------------------------------------


def run(defence, data, make_backend=one_by_one, **rounds) -> Watched:
    how = Rounds(**({"rounds": 5, "workers": 1} | rounds))
    parts = (averaging(), Plain(), network(), data[0], Evaluator(data[1]), LOCAL, how, 0, defence, make_backend)
    return Watched(*parts).go()


def out(e: Watched, by: str = "") -> set[int]:
    return {v.site for v in e.reports[-1].verdicts if v.out and v.by == by}


@pytest.mark.parametrize("seed", [0, 1])
def test_adversaries_are_found_and_hardly_anybody_else(seed: int):
    e = defended(averaging(), Placebo(**GREEN, **SOON), federation(ADVERSARIES, seed), rounds=5)
    assert set(ADVERSARIES) <= out(e)
    assert len(out(e)) <= 4  # at most a third of ten, rounded up
    assert not any(v.out for report in e.reports[:3] for v in report.verdicts)


def test_where_nobody_attacks_the_run_is_as_without_a_defence():
    e, plain = (defended(averaging(), d, federation((), 1), rounds=5) for d in (Placebo(**GREEN, **SOON), None))
    assert torch.equal(e.state.server["w"], plain.state.server["w"])


@pytest.mark.parametrize("kind", KINDS, ids=["alone", "with FairFedPAPL"])
def test_a_run_resumed_is_the_same_run(kind: Callable[..., ProtectsGroup], tmp_path):
    defence, data = kind(**GREEN, **SOON), federation(ADVERSARIES)
    whole = defended(averaging(), defence, data, rounds=5)
    defended(averaging(), defence, data, rounds=3).state.save(tmp_path / "checkpoint")
    second = defended(averaging(), defence, data, rounds=5, resume=tmp_path / "checkpoint")
    assert not differences(whole.state.server, second.state.server)
    assert any(v.out for v in whole.reports[-1].verdicts if v.by in ("", "placebo"))


@pytest.mark.parametrize("kind", KINDS, ids=["alone", "with FairFedPAPL"])
def test_every_backend_gives_the_same_verdicts(kind: Callable[..., ProtectsGroup]):
    defence, data = kind(**GREEN, **SOON), federation(ADVERSARIES)
    alone, program = (run(defence, data, backend) for backend in (one_by_one, step_by_step))
    several = defended(averaging(), defence, data, rounds=5, workers=2)
    for other in (program, several):
        assert not differences(alone.state.server, other.state.server, tolerance=1e-3)
        mine, theirs = ([(v.site, v.out, v.by) for v in e.reports[-1].verdicts] for e in (alone, other))
        assert mine == theirs


def test_sites_that_are_not_on_duty_keep_what_is_remembered():
    e = defended(averaging(), Placebo(**GREEN, **SOON), federation(ADVERSARIES), rounds=5, participation=0.6)
    on_duty = torch.zeros(10)
    for report in e.reports[1:]:
        on_duty[list(report.who)] += 1
    assert e.state.server["defence/rounds"].tolist() == on_duty.tolist()
    assert [v.site for v in e.reports[-1].verdicts] == list(e.reports[-1].who)


def test_the_names_of_adversaries_are_found_in_groups_of_sites():
    told, oracle = federation(ADVERSARIES)
    halves = replace(told, groups=(0, 1) * 5), oracle
    e = defended(averaging(), Placebo(**GREEN, **SOON), halves, rounds=2)
    assert [server["defence/sum_q"].shape for server in e.state.servers] == [(5, 3)] * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attribute": None}, "placebo protects a group, but the data have no sensitive attribute"),
        ({"attribute": Attribute("colour", ("red", "green"), 1)}, "needs at least 3 groups; colour has 2"),
        ({"groups": (0, 0, 0) + (1,) * 7}, "needs at least 4 sites, and there are 3 in the smallest group of sites"),
        ({"classes": ("low", "medium", "top")}, "defence.unprivileged"),
    ],
)
@pytest.mark.parametrize("kind", KINDS, ids=["alone", "with FairFedPAPL"])
def test_data_that_it_cannot_judge_are_refused(kind: Callable[..., ProtectsGroup], change, message: str):
    told, oracle = federation()
    with pytest.raises(UsageError, match=message.replace("placebo protects", "(fairfedpapl|placebo) protects")):
        defended(averaging(), kind(**GREEN), (replace(told, **change), oracle), rounds=1)


def test_too_few_sites_are_refused():
    with pytest.raises(UsageError, match="placebo needs at least 4 sites, and there are 3"):
        defended(averaging(), Placebo(**GREEN), federation(sizes=(40, 40, 40)), rounds=1)
    with pytest.raises(UsageError, match=r"at least 4 sites in a round, and 3 take part; set rounds.participation"):
        defended(averaging(), Placebo(**GREEN), federation(), rounds=1, participation=0.3)


def test_inputs_that_are_no_table_are_refused():
    told, _ = federation()
    with pytest.raises(UsageError, match=r"compares columns of a table, and here an input has the shape \(8, 1\)"):
        Placebo(**GREEN).check(replace(told, x=told.x.unsqueeze(2)), averaging(), 10)


def test_bad_settings_are_refused():
    for settings in ({"burn_in": -1}, {"first_decision": -1}, {"alarm": -1.0}, {"probe_rows": 0}):
        for kind in (Placebo, FairFedPAPLOrPlacebo):
            with pytest.raises(UsageError, match=f"defence.{next(iter(settings))}"):
                kind(**settings)
    with pytest.raises(UsageError, match=r"defence\.dummy_rows"):
        FairFedPAPLOrPlacebo(dummy_rows=0)


# -- both together -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Says(ProtectsGroup):
    """Lets answers count for what it was told."""

    name = "says"
    n: tuple[float, ...] = ()

    def inspect(self, memory, sent, updates, context):
        n = torch.tensor(self.n)
        for row, site in enumerate(updates.who):
            context.record_verdict(site, None, self.n[row], self.n[row] < 1)
        rows = n.nonzero().flatten()
        kept = replace(updates.only(rows), n=n[rows]) if len(rows) else None
        return kept, {"seen": memory["seen"] + 1}


def both(monkeypatch: pytest.MonkeyPatch, *told: tuple[float, ...]):
    members = tuple(replace(Says(), n=n) for n in told)
    for member, name in zip(members, ("x", "y"), strict=True):
        object.__setattr__(member, "name", name)
    monkeypatch.setattr(FairFedPAPLOrPlacebo, "members", property(lambda self: members))
    updates, context = Updates((0, 2, 5), torch.ones(3), {"w": torch.arange(3.0).view(3, 1)}), a_hall(0)
    memory = {"x/seen": torch.zeros(1), "y/seen": torch.ones(1)}
    kept, memory = FairFedPAPLOrPlacebo().inspect(memory, {}, updates, context)
    assert {name: float(t) for name, t in memory.items()} == {"x/seen": 1, "y/seen": 2}
    return kept, context


def test_the_lower_of_two_weights_counts(monkeypatch: pytest.MonkeyPatch):
    kept, context = both(monkeypatch, (1.0, 0.0, 1.0), (0.25, 1.0, 1.0))
    assert kept.who == (0, 5)
    assert kept.n.tolist() == [0.25, 1.0]
    assert kept["w"].tolist() == [[0], [2]]
    assert [(v.by, v.site, v.out) for v in context.verdicts] == [
        *(("x", 0, False), ("x", 2, True), ("x", 5, False)),
        *(("y", 0, True), ("y", 2, False), ("y", 5, False)),
    ]
    assert both(monkeypatch, (1.0, 0.0, 0.0), (0.0, 1.0, 1.0))[0] is None
    assert both(monkeypatch, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))[0] is None


def test_the_two_are_as_they_would_be_alone():
    data = federation(ADVERSARIES)
    settings = {"dummy_rows": 20, "smoothing": 0.5}
    together = FairFedPAPLOrPlacebo(**GREEN, **SOON, **settings)
    assert together.members == (FairFedPAPL(**GREEN, **settings), Placebo(**GREEN, **SOON))
    e = defended(averaging(), together, data, rounds=1)
    for member in together.members:
        alone = defended(averaging(), member, data, rounds=1)
        for name, t in alone.state.server.items():
            if name.startswith("defence/"):
                own = name.removeprefix("defence/")
                assert torch.equal(t, e.state.server[f"defence/{member.name}/{own}"])


def test_rows_counted_follow_the_sites():
    updates = Updates((4, 1, 7), torch.tensor([3.0, 4.0, 5.0]), {})
    assert rows_counted(Updates((7, 4), torch.tensor([2.0, 1.0]), {}), updates).tolist() == [1, 0, 2]
    assert rows_counted(None, updates).tolist() == [0, 0, 0]
