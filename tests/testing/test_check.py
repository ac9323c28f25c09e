"""The contract suite as an author of a method calls it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext
from imperfed.core.exchange import Updates
from imperfed.core.objective import Objective
from imperfed.testing import check
from imperfed.testing.cases import cases_of
from imperfed.testing.toy import Plain

PLAIN = Plain()


@dataclass(frozen=True)
class FirstOnly(Algorithm):
    name: ClassVar[str] = "first-only"
    objective: Objective | None = PLAIN

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        return server | {"w": updates["w"][0]}


@dataclass(frozen=True)
class Failing(FirstOnly):
    name: ClassVar[str] = "failing"

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        raise RuntimeError("sizes differ")


def test_an_objective_that_keeps_the_contract() -> None:
    check(Plain())


def test_the_clause_that_fails_is_named() -> None:
    with pytest.raises(AssertionError, match="first-only-plain breaks the clause order_of_answers_makes_no_difference"):
        check(FirstOnly())


def test_an_error_on_the_way_is_a_breach_too() -> None:
    with pytest.raises(AssertionError, match=r"breaks the clause same_seed_same_bits .*RuntimeError: sizes differ"):
        check(Failing())


def test_an_algorithm_without_an_objective_meets_every_kind_of_labels() -> None:
    @dataclass(frozen=True)
    class Free(Algorithm):
        name: ClassVar[str] = "free"

    kinds = {case.kind.kind for case in cases_of(Free())}
    assert {"exact", "candidates", "annotated"} <= kinds
    assert len(kinds) == len(cases_of(Free()))


def test_anything_but_a_method_is_refused() -> None:
    with pytest.raises(TypeError, match=r"such as check\(MyMethod\(\)\)"):
        check(dict)  # type: ignore[arg-type]


def test_it_needs_neither_pytest_nor_hypothesis() -> None:
    code = "import sys, imperfed.testing; assert not {'pytest', 'hypothesis'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("method", [FirstOnly(), FirstOnly, "tests.testing.test_check:FirstOnly"])
def test_a_method_is_an_instance_a_class_or_a_name(method: object, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    monkeypatch.setattr("imperfed.testing.CLAUSES", (lambda case: checked.append(str(case)),))
    check(method)  # type: ignore[arg-type]
    assert checked == [str(case) for case in cases_of(FirstOnly())]
