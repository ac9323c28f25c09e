"""The message about an unknown name: short choices whole, long ones by their nearest names and a command."""

from __future__ import annotations

import pytest

from imperfed.core.errors import unknown

MANY = [f"name-{letter}" for letter in "abcdefghi"]


@pytest.mark.parametrize(
    ("what", "name", "known", "message"),
    [
        ("colour", "gren", ["red", "green"], "unknown colour 'gren'. Did you mean 'green'? Known: green, red"),
        ("colour", "xyz", ["red", "green"], "unknown colour 'xyz'. Known: green, red"),
        (
            "colour",
            "grean",
            ["green", "great", "grain"],
            "unknown colour 'grean'. Did you mean 'green'? Known: grain, ",
        ),
        ("model", "xyz", MANY, "unknown model 'xyz'. List all with: imperfed list models"),
        ("algorithm", "fedavgg", [*MANY, "fedavg"], "Did you mean 'fedavg'? List all with: imperfed list"),
        (
            "site",
            "xyz",
            MANY,
            "unknown site 'xyz'. Known: name-a, name-b, name-c, name-d, name-e, name-f, name-g, name-h and 1 more",
        ),
    ],
)
def test_the_message(what: str, name: str, known: list[str], message: str) -> None:
    assert message in str(unknown(what, name, known))


def test_a_word_of_a_name_names_it_and_what_is_spelt_otherwise_does_not() -> None:
    names = [*MANY, "noise_rate", "italian"]
    assert "Did you mean 'noise_rate'? List" in str(unknown("dataset", "rate", names))
    assert "Did you mean" not in str(unknown("dataset", "hospital", names))


def test_many_names_are_told_by_the_three_nearest() -> None:
    error = str(unknown("site", "name-", MANY))
    assert error.count("'name-") == 1 + 3  # the unknown one and three
    assert " or 'name-" in error
    assert "Known" not in error
    assert len(str(unknown("site", "name-", MANY[:8]))) > len("unknown site 'name-'. Known: ") + sum(map(len, MANY[:8]))


def test_a_caller_may_say_what_lists_them() -> None:
    assert str(unknown("algorithm", "x", MANY, "imperfed show fedavg")).endswith(" List all with: imperfed show fedavg")
