"""How far predictions agree with labels as given: one score per kind of labels, worked by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from imperfed.core.labels import KINDS, Annotated, Candidates, Exact, Labels, Memberships, Positive, Positives
from imperfed.core.labels.validity import UNKNOWN, Validity, mean

LOGITS = torch.tensor([[3.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 3.0], [1.0, 5.0, 1.0, 0.0]])


def sets(*rows: str) -> torch.Tensor:
    return torch.tensor([[mark == "x" for mark in row] for row in rows])


def test_exact_labels_count_what_is_right() -> None:
    assert Exact(torch.tensor([0, 1, 1]), 4).validity(LOGITS) == pytest.approx((2 / 3, 3.0))
    assert Exact.validity_name() == "accuracy"


def test_candidate_sets_are_corrected_for_their_size() -> None:
    # Predictions: a, d, b. Sizes 1, 2, 3 of 4 classes: q = 0, 1/3, 2/3. Hits: 1, 0, 1.
    labels = Candidates(sets("x...", "xx..", "xxx."), 4)
    weight = 1 + 2 / 3 + 1 / 3
    assert labels.validity(LOGITS) == pytest.approx(((1 - 0 - 1 / 3 + 1 - 2 / 3) / weight, weight))
    # With sets of one size it is the plain mean of (hit - q) / (1 - q).
    same = Candidates(sets("xx..", "xx..", "xx.."), 4)
    assert same.validity(LOGITS).score == pytest.approx((1 + (0 - 1 / 3) / (2 / 3) + 1) / 3)


def test_a_set_of_all_classes_says_nothing() -> None:
    assert Candidates(sets("xxxx"), 4).validity(LOGITS[:1]) is UNKNOWN
    assert Candidates(sets("x"), 1).validity(torch.zeros(1, 1)) is UNKNOWN
    both = Candidates(sets("xxxx", "...x"), 4).validity(LOGITS[:2])
    assert both == (1.0, 1.0)


def test_the_score_of_candidate_sets_is_the_accuracy_on_average() -> None:
    draw = torch.Generator().manual_seed(0)
    n, classes = 40_000, 6
    y = torch.randint(classes, (n,), generator=draw)
    right = torch.rand(n, generator=draw) < 0.6
    predicted = torch.where(right, y, (y + torch.randint(1, classes, (n,), generator=draw)) % classes)
    size = torch.randint(1, classes + 1, (n,), generator=draw)  # uniform distractors, every size
    order = torch.rand(n, classes, generator=draw).scatter(1, y[:, None], -1.0).argsort(1).argsort(1)
    labels = Candidates(order < size[:, None], classes)
    accuracy = float((predicted == y).double().mean())
    assert labels.validity(torch.eye(classes)[predicted]).score == pytest.approx(accuracy, abs=0.02)


def test_memberships_are_sets_of_what_is_above_zero() -> None:
    degrees = torch.tensor([[0.5, 0.0, 0.2, 0.0]])
    assert Memberships(degrees, 4).validity(LOGITS[:1]) == Candidates(degrees > 0, 4).validity(LOGITS[:1])


def test_annotations_are_judged_by_annotated_cells_alone() -> None:
    logits = torch.tensor([[0.9, 0.0, 3.0], [0.8, 0.0, 2.0], [0.7, 0.0, 1.0], [0.6, 0.0, 0.0]])
    # First class: present 0.9 and 0.7, absent 0.8: one pair of two in order. Second: equal logits, one half. Third:
    # never absent, so that nothing can be said.
    marks = torch.tensor([[1, 1, 1], [0, 0, 1], [1, -1, -1], [-1, -1, -1]], dtype=torch.int8)
    assert Annotated(marks, 3).validity(logits) == pytest.approx((0.5, 5.0))
    better = torch.tensor([[1, -1, 1], [1, -1, 0], [0, -1, 0], [-1, -1, 1]], dtype=torch.int8)
    assert Annotated(better, 3).validity(logits) == pytest.approx(((1.0 + 0.5) / 2, 7.0))


def test_annotations_without_both_values_say_nothing() -> None:
    marks = torch.tensor([[1, -1], [1, 0]], dtype=torch.int8)
    assert Annotated(marks, 2).validity(torch.rand(2, 2)) is UNKNOWN


def test_positives_are_ranked_against_the_rest() -> None:
    # Row 1, a and c: below a are b and d of two; below c is d. Row 2, b: above a only, of three. Row 3 names nothing.
    labels = Positives(sets("x.x.", ".x..", "...."), 4)
    assert labels.validity(LOGITS) == pytest.approx(((1.0 + 0.5 + 1 / 3) / 3, 3.0))
    # Equal logits count one half; a row that names every class has nothing to be compared with.
    ties = Positives(sets("x...", "xxxx"), 4).validity(LOGITS[[2, 0]])
    assert ties == pytest.approx(((0.5 + 1) / 3, 1.0))


def test_one_positive_per_row_is_a_set_of_one() -> None:
    own = Positive(torch.tensor([1, 3, 0]), 4)
    assert own.validity(LOGITS) == Positives.from_classes(own.values, 4).validity(LOGITS)
    assert Positive.validity_name() == Positives.validity_name() == "ranking"


def test_many_positives_are_ranked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = Positives(sets("x.x.", ".x..", "...x"), 4)
    whole = labels.validity(LOGITS)
    monkeypatch.setattr("imperfed.core.labels.validity.PAIRS", 4)
    assert labels.validity(LOGITS) == pytest.approx(whole)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.kind)
def test_no_rows_say_nothing_about_any_kind(kind: type[Labels]) -> None:
    assert kind.empty(3).validity(torch.zeros(0, 3)) is UNKNOWN
    assert kind.validity_name()


def test_a_kind_of_your_own_is_judged_by_the_classes_it_names() -> None:
    @dataclass(frozen=True)
    class Guessed(Candidates):
        kind: ClassVar[str] = "guessed"

    @dataclass(frozen=True)
    class Tagged(Positives):
        kind: ClassVar[str] = "tagged"

    rows = sets("xx..", "..xx", ".x..")
    assert Guessed(rows, 4).validity(LOGITS) == Labels.validity(Candidates(rows, 4), LOGITS)
    assert Tagged(rows, 4).validity(LOGITS) == Labels.validity(Positives(rows, 4), LOGITS)


def test_the_mean_over_sites_goes_by_weight_and_skips_what_is_unknown() -> None:
    sites = [Validity(0.9, 10.0), UNKNOWN, Validity(0.3, 30.0), Validity(math.nan, 5.0)]
    assert mean(sites) == pytest.approx((0.45, 40.0))
    assert mean([UNKNOWN]) is UNKNOWN
