"""The clauses about training recipes, for methods that differ in their steps. `check` makes them for any method."""

from __future__ import annotations

import pytest

from imperfed.algorithms import catalogue
from imperfed.core.algorithm import Algorithm
from imperfed.testing.cases import Case, cases_of
from imperfed.testing.recipes import (
    RECIPES,
    backends_follow_a_recipe_alike,
    recipes_of,
    resuming_a_recipe_makes_no_difference,
)

WHOLE = ("fedavg", "fedprox", "scaffold", "slowmo", "pfedpll")
"""Stacked steps, corrected gradients, steps of its own, a server that divides by the rate, personal weights."""


def first_case(name: str) -> Case:
    method = catalogue()[name]()
    assert isinstance(method, Algorithm)
    return cases_of(method)[0]


PAIRS = [(first_case(name), recipe) for name in WHOLE for recipe in recipes_of(first_case(name))]
AMONG_ALL = [
    (case, recipe)
    for case in (first_case(name) for name, method in catalogue().items() if issubclass(method, Algorithm))
    for recipe in (("cosine", "augment") if "draws" in case.algorithm.overridden else ("cosine",))
    if recipe in recipes_of(case) and case.algorithm.name not in WHOLE
]
"""What every method must get right: a rate that changes, in a captured program a tensor; draws beside its own."""


def spelled(value: object) -> str:
    return str(value)


@pytest.mark.parametrize(("case", "recipe"), PAIRS + AMONG_ALL, ids=spelled)
def test_backends_follow_a_recipe_alike(case: Case, recipe: str) -> None:
    backends_follow_a_recipe_alike(case, recipe)


@pytest.mark.parametrize(("case", "recipe"), PAIRS, ids=spelled)
def test_resuming_a_recipe_makes_no_difference(case: Case, recipe: str) -> None:
    resuming_a_recipe_makes_no_difference(case, recipe)


def test_plain_averaging_is_trained_by_every_recipe() -> None:
    assert recipes_of(first_case("fedavg")) == list(RECIPES)
