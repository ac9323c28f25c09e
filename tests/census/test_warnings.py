"""Every warning on labels that deserve it, and none on labels that do not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from imperfed.census.class_names import name_warnings
from imperfed.census.figures import SiteRows, take
from imperfed.census.warnings import warnings
from imperfed.core.labels import Annotated, Candidates, Exact, Labels, Positive

CLASSES = ("cat", "dog", "owl")


def told(*labels: Labels, x: Sequence[Tensor] = (), measured: bool = True, **more: object) -> tuple[str, ...]:
    """The warnings of sites A, B, ... whose inputs are all different if none are given."""
    at, held = 0, []
    for k, part in enumerate(labels):
        rows = x[k] if x else torch.arange(at, at + len(part)).float()[:, None]
        held.append(SiteRows("ABCDEFGHIJ"[k], rows, part))
        at += len(part)
    return warnings(take("zoo", CLASSES, held, b"key", **more), measured)  # type: ignore[arg-type]


def exact(*values: int) -> Exact:
    return Exact(torch.tensor(values), 3)


def annotated(*rows: Sequence[int], times: int = 10) -> Annotated:
    return Annotated(torch.tensor(rows * times, dtype=torch.int8), 3)


def candidates(*rows: Sequence[int], times: int = 10) -> Candidates:
    return Candidates(torch.tensor(rows * times, dtype=torch.bool), 3)


EVEN = exact(*[0, 1, 2] * 5)


def test_labels_in_order_deserve_no_warning() -> None:
    assert told(EVEN, EVEN) == ()


def test_a_class_that_a_site_never_annotates() -> None:
    found = told(annotated((1, 0, -1), (0, 1, -1)), annotated((1, 1, 0), (0, 0, 1)))
    assert found == ("a blank is read as not annotated, not as negative", "site A never annotates owl")


def test_many_sites_are_counted_and_not_named() -> None:
    some, all_of_them = annotated((1, 0, -1), (0, 1, -1)), annotated((1, 1, 0), (0, 0, 1))
    assert "1 class is annotated at only some of 10 sites: owl at 2" in told(*[some] * 8, *[all_of_them] * 2)


def test_a_class_that_nobody_annotates_and_one_without_a_positive() -> None:
    found = told(annotated((1, 0, -1), (0, 0, -1)))
    assert "nobody annotates owl: no method can learn it" in found
    assert "class dog is at no site as a positive" in found


def test_a_site_that_annotates_nothing() -> None:
    found = told(annotated((1, 1, 1), (0, 0, 0)), annotated((-1, -1, -1)))
    assert "site B annotates nothing at all" in found
    assert not any("never" in sentence for sentence in found)


def test_a_class_at_no_site_and_a_site_of_one_class() -> None:
    found = told(exact(*[0, 1] * 10), exact(*[1] * 10))
    assert "class owl is at no site" in found
    assert "site B holds only one class, dog" in found


def test_a_small_site() -> None:
    assert told(EVEN, exact(0, 1, 2)) == ("site B has 3 rows",)
    assert told(EVEN, exact(0))[0] == "site B holds only one class, cat"


def test_sets_of_all_classes_say_nothing() -> None:
    found = told(candidates((1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1)))
    assert found == ("10 rows have all 3 classes as candidates, which says nothing",)


def test_candidates_that_never_part() -> None:
    found = told(candidates((1, 1, 0), (0, 1, 0), (0, 0, 1)))
    assert found == ("cat is never a candidate without dog: candidate sets alone cannot tell them apart",)


def test_a_class_of_nearly_all_rows_is_said_to_make_accuracy_useless() -> None:
    skewed = exact(*[1] * 18, 0, 2)
    assert told(skewed, skewed) == (
        "90.00\N{NO-BREAK SPACE}% of all rows are dog: always answering dog is right as often, so look at recall class "
        "by class, not accuracy",
    )
    assert told(exact(*[1] * 17, 0, 0, 2), skewed) == ()


def test_sets_of_one_are_exact_labels() -> None:
    found = told(candidates((1, 0, 0), (0, 1, 0), (0, 0, 1)))
    assert found == ('every set holds one candidate: labels are exact, write kind = "exact"',)


def test_positives_only() -> None:
    found = told(Positive(EVEN.values, 3), Positive(torch.zeros(10, dtype=torch.int64), 3))
    assert found == ("labels are positives only: a class that is not named is read as unknown, not as negative",)


def test_a_site_of_one_positive_class_is_not_called_unlike() -> None:
    sites = [torch.full((10,), c) for c in (0, 0, 0, 0, 1, 2)]
    unlike = "class shares differ"
    assert any(unlike in sentence for sentence in told(*(Exact(y, 3) for y in sites)))
    assert not any(unlike in sentence for sentence in told(*(Positive(y, 3) for y in sites)))


def test_an_unlike_site_and_one_that_holds_nearly_all() -> None:
    found = told(exact(*[0, 0, 0, 0, 0, 1] * 50), exact(*[2] * 11, 1), EVEN)
    assert "site B: class shares differ from those of all sites together (distance above 0.5)" in found
    assert any(sentence.startswith("site A holds 91.74") for sentence in found)


def test_repeated_inputs() -> None:
    x = torch.arange(15).float()[:, None]
    again = torch.cat([x[:14], x[:1]])
    found = told(exact(*[0, 1, 2] * 5), exact(*[0, 1, 2] * 4, 1, 1, 1), x=[x, again + 0.0], tests=[x[:2]])
    assert "1 row repeats the inputs of an earlier row at B" in found
    assert "29 rows have the same inputs as a row of another site; most are shared by A and B (14)" in found
    assert "2 inputs occur in several rows with different labels" in found
    assert any(sentence.startswith("2 test rows have the same inputs as a training row") for sentence in found)


@pytest.mark.parametrize("measured", [True, False])
def test_nothing_to_measure_on(measured: bool) -> None:
    sets = candidates((1, 1, 0), (0, 1, 1), (1, 0, 1))
    assert any("nothing can be measured" in sentence for sentence in told(sets, measured=measured)) is not measured


def test_an_empty_group() -> None:
    members = torch.tensor([[1.0, 0.0]] * 15)
    census = take("zoo", CLASSES, [SiteRows("A", torch.arange(15.0)[:, None], EVEN, members)], b"key", ("old", "young"))
    assert warnings(census, True) == ("group young is at no site",)


def names(classes: tuple[str, ...], *labels: Labels) -> list[str]:
    """What is said about the names of classes; the rows of every site are all different."""
    held = [
        SiteRows("AB"[k], torch.arange(len(part)).float()[:, None] + 100 * k, part) for k, part in enumerate(labels)
    ]
    return [*name_warnings(take("zoo", classes, held, b"key"))]


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (("?", "cat", "dog"), "class ?: a label, or a word for none?"),
        (("?", "NA", "cat"), "classes ?, NA: labels, or words for none?"),
        (("Cat", "cat", "owl"), "classes Cat and cat: one class under two names?"),
        (("gold fish", "goldfish", "owl"), "classes gold fish and goldfish: one class under two names?"),
        (("benign", "bening", "owl"), "classes benign and bening: one class under two names?"),
    ],
)
def test_names_that_are_probably_no_class_of_their_own(classes: tuple[str, ...], said: str) -> None:
    (found,) = names(classes, exact(*[0, 2] * 5), exact(*[1, 2] * 5))
    assert found.startswith(said)


@pytest.mark.parametrize("classes", [("stage1", "stage2", "owl"), ("cat", "cap", "owl"), ("none", "missing", "owl")])
def test_names_that_are_classes_are_left_alone(classes: tuple[str, ...]) -> None:
    assert names(classes, exact(*[0, 2] * 5), exact(*[1, 2] * 5)) == []


def test_names_that_a_site_uses_side_by_side_are_two() -> None:
    assert names(("benign", "bening", "owl"), EVEN, exact(*[1, 2] * 5)) == []


def test_a_site_with_codes_of_its_own() -> None:
    classes = ("0", "1", "benign", "malignant")
    held = [Exact(torch.tensor([2, 3] * 5), 4), Exact(torch.tensor([0, 1] * 5), 4)]
    assert names(classes, *held)[0] == (
        "site A names other classes (benign, malignant) than all other sites (0, 1): the same ones under other names?"
    )
