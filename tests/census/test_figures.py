"""The census on labels written out by hand: every figure is one that can be counted on paper."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.spatial.distance import jensenshannon
from torch import Tensor

from imperfed.census.figures import Census, SiteRows, take
from imperfed.core.labels import Annotated, Candidates, Exact, Labels, Positive, Positives

KEY = b"k" * 32
CLASSES = ("cat", "dog", "owl")


def census(*sites: tuple[Tensor, Labels], groups: Tensor | None = None) -> Census:
    held = [SiteRows(f"site {k}", x, labels, groups) for k, (x, labels) in enumerate(sites)]
    return take("zoo", CLASSES, held, KEY, ("old", "young") if groups is not None else ())


def inputs(*numbers: float) -> Tensor:
    return torch.tensor([[n, -n] for n in numbers])


def sets(*rows: str) -> Candidates:
    return Candidates(torch.tensor([[c[0] in row for c in CLASSES] for row in rows]), 3)


@pytest.mark.parametrize(
    ("labels", "positive", "negative", "unknown"),
    [
        (Exact(torch.tensor([0, 0, 2]), 3), [2, 0, 1], [1, 3, 2], [0, 0, 0]),
        (Positive(torch.tensor([0, 0, 2]), 3), [2, 0, 1], [0, 0, 0], [1, 3, 2]),
        (Positives(torch.tensor([[1, 1, 0], [0, 0, 0]], dtype=torch.bool), 3), [1, 1, 0], [0, 0, 0], [1, 1, 2]),
        (Annotated(torch.tensor([[1, 0, -1], [0, 0, -1]], dtype=torch.int8), 3), [1, 0, 0], [1, 2, 0], [0, 0, 2]),
        (sets("c", "cd", "cdo"), [1, 0, 0], [0, 1, 2], [2, 2, 1]),
    ],
)
def test_what_is_known_of_each_class(
    labels: Labels, positive: list[int], negative: list[int], unknown: list[int]
) -> None:
    found = labels.counts()
    assert [t.tolist() for t in (found.positive, found.negative, found.unknown)] == [positive, negative, unknown]


def test_candidate_sets() -> None:
    found = census((inputs(1, 2, 3), sets("cd", "cd", "o")), (inputs(4, 5), sets("cdo", "do")))
    assert [site.sizes for site in found.sites] == [{1: 1, 2: 2}, {2: 1, 3: 1}]
    assert found.sizes() == {1: 1, 2: 3, 3: 1}
    assert found.pairs == (("cat", "dog", 3), ("dog", "owl", 2), ("cat", "owl", 1))
    assert found.known.weight.tolist() == pytest.approx([1 + 1 / 3, 1 + 1 / 3 + 1 / 2, 1 + 1 / 3 + 1 / 2])
    assert found.sites[0].largest is not None
    assert found.sites[0].largest[1] == pytest.approx(1 / 3)


def test_skew_is_the_distance_of_class_shares_to_everybodys() -> None:
    first, second = Exact(torch.tensor([0, 0, 0, 1]), 3), Exact(torch.tensor([2, 2]), 3)
    found = census((inputs(1, 2, 3, 4), first), (inputs(5, 6), second))
    every = [3 / 6, 1 / 6, 2 / 6]
    wanted = [jensenshannon(p, every, base=2) for p in ([3 / 4, 1 / 4, 0], [0, 0, 1])]
    assert [site.skew for site in found.sites] == pytest.approx(wanted)
    assert [site.largest for site in found.sites] == [("cat", 0.75), ("owl", 1.0)]


def test_not_looking_for_a_class_is_no_skew() -> None:
    first = Annotated(torch.tensor([[1, 1, -1], [0, 1, -1]], dtype=torch.int8), 3)
    second = Annotated(torch.tensor([[-1, 1, 1], [-1, 1, 0]], dtype=torch.int8), 3)
    found = census((inputs(1, 2), first), (inputs(3, 4), second))
    assert [site.skew for site in found.sites] == pytest.approx([0.0, 0.0], abs=1e-6)
    assert found.sites[0].largest == ("dog", 1.0)


def test_a_site_that_annotates_nothing_has_no_skew() -> None:
    blank = Annotated(torch.full((2, 3), -1, dtype=torch.int8), 3)
    other = Annotated(torch.ones(1, 3, dtype=torch.int8), 3)
    found = census((inputs(1, 2), blank), (inputs(3), other))
    assert found.sites[0].skew is None
    assert found.sites[0].largest is None
    assert not math.isnan(found.sites[1].skew or 0.0)


def test_repeated_rows_within_and_across_sites() -> None:
    labels = [Exact(torch.tensor(y), 3) for y in ([0, 0, 1, 2], [0, 2], [1])]
    repeats = census(
        (inputs(1, 1, 2, 3), labels[0]),  # 1 twice with one label
        (inputs(1, 2), labels[1]),  # 2 again, with another label
        (inputs(9), labels[2]),
    ).repeats
    assert repeats.within == (1, 0, 0)
    assert repeats.elsewhere == (3, 2, 0)
    assert repeats.shared == ((0, 1, 2),)
    assert repeats.contradicted == 1


def test_other_candidates_for_the_same_inputs_contradict_nothing() -> None:
    assert census((inputs(1, 1), sets("cd", "d"))).repeats.contradicted == 0


def test_the_key_changes_no_figure() -> None:
    held = [SiteRows("a", inputs(1, 1, 2), sets("c", "d", "o")), SiteRows("b", inputs(2), sets("o"))]
    assert take("zoo", CLASSES, held, b"one").repeats == take("zoo", CLASSES, held, b"other").repeats


def test_test_rows_that_some_site_trains_on() -> None:
    held = [SiteRows("a", inputs(1, 2), sets("c", "d")), SiteRows("b", inputs(3), sets("o"))]
    assert take("zoo", CLASSES, held, KEY, tests=[inputs(2, 4), inputs(3, 3)]).repeats.tested == 3


def test_candidates_that_never_part() -> None:
    labels = sets(*["cd"] * 5, *["d"] * 3, *["do"] * 4)  # an owl four times is too seldom to say
    assert census((inputs(*range(12)), labels)).inseparable == (("cat", "dog"),)


def test_groups_of_a_sensitive_attribute() -> None:
    members = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    found = census((inputs(1, 2), sets("c", "d")), groups=members)
    assert found.sites[0].groups == {"old": 2, "young": 1}
    assert found.sites[0].ambiguous == 1
