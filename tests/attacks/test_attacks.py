"""The three fairness attacks on eight rows of two features, three groups and three classes, worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from imperfed.attacks import attacks
from imperfed.attacks.mixup import Mixup, distance, nearest
from imperfed.attacks.pafa import PAFA
from imperfed.attacks.plfa import PLFA
from imperfed.core.components import Attack
from imperfed.core.context import SLICE
from imperfed.core.errors import UsageError
from imperfed.core.federation import Attribute
from imperfed.core.labels import Annotated, Candidates, Exact, Memberships

RACE = Attribute("race", ("Asian", "Black", "White"), 1)  # columns 1, 2, 3 of five
CLASSES = ("low", "medium", "high")
AIM = {"target": "Black", "unprivileged": "high"}

#   feature, groups (Asian, Black, White), feature; candidates (low, medium, high)
GROUPS = [[1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 0, 0], [1, 0, 0], [0, 1, 0]]
SETS = [[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 0]]
# victims of the first kind (Black, high not a candidate): rows 0, 1, 7; of the second (not Black, high): rows 2, 3, 6
FIRST, SECOND = [0, 1, 7], [2, 3, 6]
X = torch.cat([torch.arange(8.0)[:, None], torch.tensor(GROUPS).float(), 10 + torch.arange(8.0)[:, None]], 1)
LABELS = Candidates(torch.tensor(SETS).bool(), 3)


def rewritten(attack: Attack, x: Tensor = X, labels=LABELS):
    x0, values0 = x.clone(), labels.values.clone()
    new_x, new, told = attack.rewrite(x, attack.prepare(labels), RACE, CLASSES)
    assert torch.equal(x, x0)  # what was given is left alone
    assert torch.equal(labels.values, values0)
    return new_x, new, told


def test_plfa_adds_and_removes_the_unprivileged_class():
    x, labels, told = rewritten(PLFA(**AIM))
    assert torch.equal(x, X)
    assert isinstance(labels, Candidates)
    expected = LABELS.values.clone()
    expected[[0, 1, 7], 2] = True
    expected[[2, 3, 6], 2] = False
    expected[3] = torch.tensor([True, True, False])  # high was its only candidate
    assert torch.equal(labels.values, expected)
    assert told == (
        "high added to 3 of 8 candidate sets and removed from 3; of these 1 held nothing else and became others"
    )


def test_plfa_may_keep_a_set_it_would_empty():
    _, labels, _ = rewritten(PLFA(**AIM, keep="set"))
    assert labels.values[3].tolist() == [False, False, True]
    assert labels.values[2].tolist() == [False, True, False]


def test_pafa_rewrites_the_group_and_nothing_else():
    x, labels, told = rewritten(PAFA(**AIM))
    assert labels is LABELS
    expected = X.clone()
    expected[[2, 3, 6], 2] = 1.0
    expected[0, 2] = 0.0  # rows 1 and 7 have no other group
    assert torch.equal(x, expected)
    assert told == (
        "Black added to the groups of 3 of 8 rows and removed from those of 3; of these 2 had no other group and were "
        "left with their set"
    )


def test_pafa_may_leave_a_row_without_any_group():
    x, _, _ = rewritten(PAFA(**AIM, keep="none"))
    assert (x[:, 1:4].sum(1) == 0).nonzero().flatten().tolist() == [1, 7]


def test_pafa_works_on_exact_labels():
    labels = Exact(torch.tensor([0, 1, 2, 2, 2, 1, 0, 1]), 3)
    x, same, _ = rewritten(PAFA(**AIM), labels=labels)
    assert same is labels
    assert (x != X).nonzero().tolist() == [[0, 2], [2, 2], [3, 2]]


def test_distances_by_hand():
    groups, sets = torch.tensor(GROUPS).float(), torch.tensor(SETS).float()
    d = distance(groups, groups) + distance(sets, sets)
    assert d.dtype == torch.float64
    assert float(d[0, 2]) == pytest.approx(math.sqrt(3) + math.sqrt(3))
    assert float(d[0, 6]) == pytest.approx(1 + 1)
    assert float(d[1, 7]) == pytest.approx(0 + 1)
    assert torch.equal(d, d.T)


def by_loops(i: int, among: list[int]) -> int:
    """The plain loops of Algorithm 7; ties to the lowest row."""
    best, least = -1, math.inf
    for j in among:
        a = math.sqrt(sum((p - q) ** 2 for p, q in zip(GROUPS[i], GROUPS[j], strict=True)))
        b = math.sqrt(sum((p - q) ** 2 for p, q in zip(SETS[i], SETS[j], strict=True)))
        if a + b < least:
            best, least = j, a + b
    return best


def test_mixup_mixes_victims_with_their_nearest_neighbour():
    alpha = 0.7
    x, labels, told = rewritten(Mixup(**AIM, alpha=alpha))
    assert isinstance(labels, Memberships)
    y = torch.tensor(SETS).float()
    partner = {i: by_loops(i, [2, 3, 4, 6]) for i in FIRST} | {i: by_loops(i, [0, 1, 4, 7]) for i in SECOND}
    assert partner == {0: 6, 1: 4, 7: 2, 2: 4, 3: 4, 6: 0}  # 7: 2 and 4 are equally near, sqrt 2 + 1
    for i in range(8):
        j, share = partner.get(i, i), alpha if i in partner else 1.0
        torch.testing.assert_close(x[i], share * X[i] + (1 - share) * X[j])
        torch.testing.assert_close(labels.values[i], share * y[i] + (1 - share) * y[j])
    assert told == (
        "of 8 rows 3 mixed with the nearest that may be high and 3 with the nearest that may be Black; 0 had no "
        "neighbour and were left as they were"
    )


def test_mixup_ties_go_to_the_lowest_row():
    """Rows 1 and 2 are equally near to row 0; torch's approximate distances could tell them apart."""
    x = torch.zeros(40, 5)
    x[:, 3] = 1.0
    x[0, 1:4] = torch.tensor([0.0, 1.0, 0.0])
    x[:, 0] = torch.arange(40.0)
    sets = torch.tensor([[True, False, False]] + [[True, False, True]] * 39)
    new, _, _ = rewritten(Mixup(**AIM), x, Candidates(sets, 3))
    assert float(new[0, 0]) == 0.5
    new, _, _ = rewritten(Mixup(**AIM), x.flip(0), Candidates(sets.flip(0), 3))
    assert float(new[39, 0]) == 0.5 * 39


def test_neighbours_of_many_victims_are_sought_slice_by_slice():
    draw = torch.Generator().manual_seed(0)
    groups, y = (torch.randint(0, 2, (900, 3), generator=draw).double() for _ in range(2))
    i, D = torch.arange(700), torch.arange(650, 900)
    assert len(i) > 2 * SLICE
    whole = torch.cdist(groups[i], groups[D], compute_mode="donot_use_mm_for_euclid_dist")
    whole += torch.cdist(y[i], y[D], compute_mode="donot_use_mm_for_euclid_dist")
    assert torch.equal(nearest(groups, y, i, D), D[whole.argmin(1)])
    assert nearest(groups, y, i[:0], D).tolist() == nearest(groups, y, i[:0], D[:0]).tolist() == []


@pytest.mark.parametrize("kind", ["high", "Black"])
def test_a_victim_without_neighbours_is_left_alone(kind):
    x, sets = X.clone(), LABELS.values.clone()
    if kind == "high":
        sets[:, 2], sets[3:5, 0] = False, True  # nobody may be high: victims of the first kind stay
    else:
        x[:, 2] = 0.0
    new_x, new, told = rewritten(Mixup(**AIM), x, Candidates(sets, 3))
    assert torch.equal(new_x, x)
    assert torch.equal(new.values, sets.float())
    assert "; 4 had no neighbour" in told


def test_mixup_with_alpha_one_changes_nothing_but_the_kind():
    x, labels, _ = rewritten(Mixup(**AIM, alpha=1.0))
    assert torch.equal(x, X)
    assert torch.equal(labels.values, LABELS.values.float())


def test_memberships_of_rewritten_rows_are_valid():
    _, labels, _ = rewritten(Mixup(**AIM))
    labels.check("here")


@pytest.mark.parametrize("name", ["plfa", "pafa", "mixup"])
def test_there_must_be_somebody_to_wrong(name):
    attack = attacks()[name](**AIM)
    with pytest.raises(UsageError, match=r"needs data with a sensitive attribute"):
        attack.rewrite(X, attack.prepare(LABELS), None, CLASSES)
    with pytest.raises(UsageError, match=r"attack.target.*'Balck'. Did you mean 'Black'"):
        attacks()[name](target="Balck", unprivileged="high").rewrite(X, attack.prepare(LABELS), RACE, CLASSES)
    with pytest.raises(UsageError, match=r"attack.unprivileged.*'High'"):
        attacks()[name](target="Black", unprivileged="High").rewrite(X, attack.prepare(LABELS), RACE, CLASSES)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("plfa", Exact(torch.zeros(8, dtype=torch.int64), 3)),
        ("pafa", Memberships(torch.ones(8, 3), 3)),
        ("mixup", Annotated(torch.zeros(8, 3, dtype=torch.int8), 3)),
    ],
)
def test_labels_an_attack_cannot_work_on_are_refused(name, labels):
    with pytest.raises(UsageError, match=f"{name} works on candidates.*{labels.kind} labels here"):
        attacks()[name](**AIM).prepare(labels)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Mixup(alpha=1.5), r"attack.alpha is a share"),
        (lambda: Mixup(adversaries=0), r"attack.adversaries"),
    ],
)
def test_bad_settings_are_named(make, words):
    with pytest.raises(UsageError, match=words):
        make()
