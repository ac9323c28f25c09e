"""The kinds of labels: what each promises, and errors that name the row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.core.federation import Federation
from imperfed.core.labels import KINDS as DISCOVERED
from imperfed.core.labels import Annotated, Candidates, Exact, Labels, Memberships, Positive, Positives, Probabilities
from imperfed.testing.toy import world

KINDS: list[type[Labels]] = [Exact, Positive, Candidates, Memberships, Positives, Annotated, Probabilities]
YES, NO = True, False
GOOD: dict[type[Labels], Tensor] = {
    Exact: torch.tensor([2, 0, 1, 2]),
    Candidates: torch.tensor([[YES, NO, NO], [YES, YES, YES], [NO, YES, YES], [NO, NO, YES]]),
    Positive: torch.tensor([1, 1, 0, 2]),
    Memberships: torch.tensor([[1.0, 0.0, 0.5], [0.2, 0.2, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.1]]),
    Positives: torch.tensor([[YES, NO, NO], [NO, NO, NO], [YES, YES, YES], [NO, YES, NO]]),
    Annotated: torch.tensor([[1, 0, -1], [-1, -1, -1], [0, 0, 0], [1, 1, 1]], dtype=torch.int8),
    Probabilities: torch.tensor([[1.0, 0.0, 0.0], [0.2, 0.3, 0.5], [0.0, 0.5, 0.5], [0.1, 0.8, 0.1]]),
}


def changed(kind: type[Labels], at: Any, value: Any) -> Labels:
    values = GOOD[kind].clone()
    values[at] = value
    return kind(values, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_good_labels_pass(kind: type[Labels]) -> None:
    labels = kind(GOOD[kind], 3)
    labels.check("here")
    assert len(labels) == 4


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (changed(Exact, 2, 3), r"here, row 2: label 3 is outside the label space 0 \.\. 2"),
        (changed(Exact, slice(1, 3), -1), r"here, row 1: label -1 is outside the label space 0 \.\. 2"),
        (changed(Candidates, 3, False), "here, row 3: the candidate set is empty .1 such rows in all.; give every"),
        (changed(Candidates, slice(1, 3), False), "here, row 1: .* .2 such rows in all."),
        (changed(Memberships, (1, 2), 1.5), r"here, row 1: memberships must lie in 0 \.\. 1, and not all may be 0"),
        (changed(Memberships, 2, 0.0), "here, row 2: memberships must"),
        (
            changed(Annotated, (1, 2), 2),
            "here, row 1, class 2: 2 is none of 1 .present., 0 .absent., -1 .not annotated.",
        ),
        (changed(Probabilities, (1, 2), 0.6), "here, row 1: probabilities must be 0 or more, and sum to 1"),
        (changed(Probabilities, 2, torch.tensor([-0.5, 1, 0.5])), "here, row 2: probabilities must"),
        (changed(Annotated, (3, 0), -2), "here, row 3, class 0: -2 is none of"),
    ],
    ids=lambda part: part.kind if isinstance(part, Labels) else "",
)
def test_the_first_bad_row_is_named(labels: Labels, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        labels.check("here")
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_shapes_and_types_are_named(kind: type[Labels]) -> None:
    good = GOOD[kind]
    for wrong in (good.half(), good.unsqueeze(-1), good.to(torch.int32)):
        with pytest.raises(DataError, match=f"here: {kind.kind} labels must be"):
            kind(wrong, 3).check("here")
    if kind not in (Exact, Positive):
        with pytest.raises(DataError, match=r"one column per class \(4\).*\(4, 3\)"):
            kind(good, 4).check("here")


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=20)
@given(rows=st.lists(st.integers(0, 3), max_size=6))
def test_taking_rows_keeps_kind_order_and_repetition(kind: type[Labels], rows: list[int]) -> None:
    taken = kind(GOOD[kind], 3).take(torch.tensor(rows, dtype=torch.int64))
    assert type(taken) is kind
    assert taken.classes == 3
    assert taken.values.tolist() == [GOOD[kind][row].tolist() for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stretch_of_rows_is_a_view(kind: type[Labels]) -> None:
    labels = kind(GOOD[kind], 3)
    part = labels.between(1, 3)
    assert type(part) is kind
    assert part.values.tolist() == GOOD[kind][1:3].tolist()
    assert part.values.untyped_storage().data_ptr() == labels.values.untyped_storage().data_ptr()


def test_labels_cannot_be_replaced() -> None:
    with pytest.raises(AttributeError):
        Exact(GOOD[Exact], 3).classes = 4  # type: ignore[misc]


@settings(deadline=None, max_examples=30)
@given(sets=st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=6))
def test_uniform_confidence_is_one_over_the_size_of_the_set(sets: list[set[int]]) -> None:
    mask = torch.tensor([[c in s for c in range(5)] for s in sets])
    uniform = Candidates(mask, 5).uniform()
    for row, s in zip(uniform.tolist(), sets, strict=True):
        assert row == pytest.approx([(c in s) / len(s) for c in range(5)])


@pytest.mark.parametrize("kind", KINDS)
def test_the_door_lets_good_federations_in(kind: type[Labels]) -> None:
    federation, _ = world(kind)
    assert federation.check() is federation
    assert federation.sizes() == [12, 20, 31, 26]
    pooled = federation.pooled().check()
    assert (pooled.sizes(), pooled.sites) == ([89], ("pooled",))


def with_changes(**changes: Any) -> Federation:
    federation, _ = world(Candidates)
    parts = {name: getattr(federation, name) for name in federation.__dataclass_fields__} | changes
    return Federation(**parts)


def test_the_door_names_site_row_and_feature() -> None:
    federation, _ = world(Candidates)
    values = federation.labels.values.clone()
    values[34] = False
    with pytest.raises(DataError, match="toy, site2, row 2: the candidate set is empty"):
        with_changes(labels=Candidates(values, 4)).check()
    x = federation.x.clone()
    x[15, 4], x[16, 1] = torch.nan, torch.inf
    with pytest.raises(DataError, match=r"toy, site1, row 3 \(id 15\), feature 4: not a finite number \(2 such rows"):
        with_changes(x=x).check()


def test_the_door_refuses_what_does_not_add_up() -> None:
    federation, _ = world(Candidates)
    with pytest.raises(DataError, match="toy, site1: the site has no training rows"):
        with_changes(starts=(0, 12, 12, 63, 89)).check()
    with pytest.raises(DataError, match="88 examples, but 89 labels, 89 rows at the sites, and 89 ids"):
        with_changes(x=federation.x[1:]).check()
    with pytest.raises(DataError, match="89 examples, but 89 labels, 80 rows at the sites, and 89 ids"):
        with_changes(starts=(0, 12, 32, 63, 80)).check()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": ("a", "b")}, "89 rows at the sites, and 2 ids"),
        ({"x": torch.zeros(89)}, r"the inputs are torch.float32 of shape \(89,\); they must be real numbers, one row"),
        ({"x": torch.zeros(89, 6, dtype=torch.int64)}, r"the inputs are torch.int64 of shape \(89, 6\)"),
        ({"at": torch.arange(1, 90)}, "`at` must hold numbers from 0 to 88, one per row"),
        ({"sites": ("a", "b", "c")}, "3 sites need 4 starts, the first of them 0; found 5 from 0 on"),
        ({"starts": (1, 12, 32, 63, 89)}, "4 sites need 5 starts, the first of them 0; found 5 from 1 on"),
        ({"groups": (0, 1)}, "2 groups for 4 sites; name one for each"),
        ({"classes": ("a", "b")}, "2 class names, but labels of 4 classes"),
        ({"sites": ("a", "b", "c", "a")}, "two sites are called 'a'; rename one of them"),
        ({"classes": ("a", "b", "c", "a")}, "two classes are called 'a'; rename one of them"),
    ],
)
def test_the_door_refuses_parts_of_other_lengths_types_or_names(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=f"^toy: .*{message}"):
        with_changes(**changes).check()


def test_an_exact_label_says_the_same_in_every_kind() -> None:
    exact = Exact(torch.tensor([2, 0, 2]), 3)
    for kind in KINDS:
        told = exact.as_kind(kind)
        assert type(told) is kind
        told.check("told")
        found = told.values if told.values.ndim == 1 else told.values.long()
        expected = exact.values if found.ndim == 1 else torch.tensor([[0, 0, 1], [1, 0, 0], [0, 0, 1]])
        assert torch.equal(found, expected)


def test_every_kind_is_discovered_by_its_name() -> None:
    assert {kind.kind: kind for kind in KINDS} == DISCOVERED
    assert list(DISCOVERED) == sorted(DISCOVERED)


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_no_rows_are_stored_as_those_of_some(kind: type[Labels]) -> None:
    empty = kind.empty(3)
    empty.check("here")
    assert (len(empty), empty.values.dtype, empty.values.shape[1:]) == (0, GOOD[kind].dtype, GOOD[kind].shape[1:])


@pytest.mark.parametrize("kind", KINDS)
def test_counts_account_for_every_row(kind: type[Labels]) -> None:
    counts = kind(GOOD[kind], 3).counts()
    assert (counts.positive + counts.negative + counts.unknown).tolist() == [4, 4, 4]
    assert counts.weight.dtype == torch.float64
    assert bool((counts.labelled <= 4).all())


def test_a_set_of_candidates_counts_as_one_row_in_all() -> None:
    assert float(Candidates(GOOD[Candidates], 3).counts().weight.sum()) == pytest.approx(4)
    assert float(Memberships(GOOD[Memberships], 3).counts().weight.sum()) == pytest.approx(4)


@pytest.mark.parametrize(
    ("labels", "truth", "wrong"),
    [
        (Candidates(GOOD[Candidates], 3), [1, 1, 0, 2], [True, False, True, False]),
        (Candidates(GOOD[Candidates], 3), [-1, 1, 1, -1], [False] * 4),  # what could not be read
        (Positive(GOOD[Positive], 3), [[0, 1, 0], [1, 0, 1], [0, -1, 0], [0, 0, 1]], [False, True, True, False]),
        (Positives(GOOD[Positives], 3), [[0, 1, 0], [0, 0, 0], [1, 1, -1], [1, 1, 1]], [True, False, False, False]),
        (Exact(GOOD[Exact], 3), [0, 0, 0, 0], [False] * 4),  # a wrong label is noise, no contradiction
    ],
    ids=lambda part: part.kind if isinstance(part, Labels) else "",
)
def test_a_truth_that_labels_rule_out(labels: Labels, truth: Any, wrong: list[bool]) -> None:
    assert labels.contradicted_by(torch.tensor(truth)).tolist() == wrong


def test_facts_of_a_summary() -> None:
    assert Candidates(GOOD[Candidates], 3).facts([1, 3]) == {
        "mean_size": 1.75,
        "min_size": 1,
        "max_size": 3,
        "singletons": 0.5,
    }
    assert Annotated(GOOD[Annotated], 3).facts([1, 3]) == {"annotated_rows": [[1, 2], [1, 2], [0, 2]]}
    noisy = Exact(GOOD[Exact], 3)
    assert noisy.given_facts([1, 3], None) == {}
    rates = noisy.given_facts([1, 3], torch.tensor([2, 0, 0, 2]))["noise_rates"]
    assert rates == pytest.approx([0, 1 / 3])


def test_which_classes_a_site_annotates() -> None:
    labels = Annotated(GOOD[Annotated], 3)
    assert labels.between(0, 2).annotated_classes().tolist() == [True, True, False]
    assert Exact(GOOD[Exact], 3).annotated_classes().tolist() == [True, True, True]


def test_predictions_in_words() -> None:
    probability = torch.tensor([[0.5, 0.6, 0.1], [0.2, 0.1, 0.4]])
    assert Exact.predicted(probability, "abc") == ["b", "c"]
    assert Annotated.predicted(probability, "abc") == ["a|b", ""]


def test_a_label_file_of_candidates_has_one_line_per_row() -> None:
    labels = Candidates(GOOD[Candidates][:2], 3)
    belief = torch.tensor([[1.0, 0.0, 0.0], [0.25, 0.5, 0.25]])
    assert labels.label_table(("p", "q"), "abc", belief, None) == {
        "id": ["p", "q"],
        "given": ["a", "a|b|c"],
        "suggested": ["a", "b"],
        "confidence": [1.0, 0.5],
        "reason": ["only candidate", "best of 3 candidates"],
    }
    assert labels.chance() == pytest.approx((1 + 1 / 3) / 2)
    assert labels.co_occurrence().tolist() == [[2, 1, 1], [1, 1, 1], [1, 1, 1]]  # type: ignore[union-attr]


def test_a_label_file_of_annotations_has_one_line_per_row_and_class() -> None:
    labels = Annotated(torch.tensor([[1, -1, -1]], dtype=torch.int8), 3)
    learned = torch.tensor([True, True, False])
    table = labels.label_table(("p",), "abc", torch.tensor([[0.75, 0.25, 0.5]]), learned)
    assert table == {
        "id": ["p", "p", "p"],
        "class": ["a", "b", "c"],
        "given": ["present", "", ""],
        "suggested": ["present", "absent", ""],
        "confidence": [0.75, 0.75, None],
        "reason": ["annotated", "filled in", "nobody annotates this class"],
    }


@pytest.mark.parametrize(
    ("trait", "kinds"),
    {
        "several": {Positive, Positives, Annotated},
        "settles": {Exact},
        "measurable": {Exact, Annotated},
        "ranked": {Positive, Positives},
        "partial": {Annotated},
        "inferable": {Candidates, Annotated},
        "from_cells": {Exact, Candidates, Positive, Positives},
        "from_columns": {Candidates, Positives, Annotated},
    }.items(),
)
def test_what_kinds_say_about_themselves(trait: str, kinds: set[type[Labels]]) -> None:
    assert {kind for kind in KINDS if getattr(kind, trait)} == kinds


def test_what_the_census_shows_of_a_class() -> None:
    assert [kind.tally(2, 1, 3) for kind in (Exact, Candidates, Annotated)] == ["2", "5 (2)", "+2 -1 ?3"]
    assert [kind.tally(0, 0, 0) for kind in (Exact, Candidates, Annotated)] == ["", "", "never"]
    candidates, annotated = (kind(GOOD[kind], 3).counts() for kind in (Candidates, Annotated))
    assert Candidates.naming(candidates).tolist() == [2, 2, 3]
    assert Annotated.naming(annotated).tolist() == [2, 1, 1]
    absent = Annotated(torch.tensor([[0, -1, 1]], dtype=torch.int8), 3).counts()
    assert Annotated.held(absent).tolist() == [True, False, True]
    assert Positives.held(absent).tolist() == [False, False, True]


def test_clean_rows_of_one_positive_class_name_all_of_them() -> None:
    assert {kind.clean_kind() for kind in KINDS} == {*KINDS} - {Positive}
    assert Positive.clean_kind() is Positives


def test_what_a_summary_says_about_labels_that_came_with_the_data() -> None:
    assert Candidates(GOOD[Candidates], 3).given_facts([4], None) == {"sets": "given"}
    assert Annotated(GOOD[Annotated], 3).given_facts([4], None) == {"annotates": "given"}
    assert Positives(GOOD[Positives], 3).given_facts([4], None) == {}
