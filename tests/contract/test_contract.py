"""Every clause of the contract for every method of the catalogue. A new method needs no edit here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from imperfed.algorithms import catalogue
from imperfed.core.objective import Objective
from imperfed.testing import CLAUSES
from imperfed.testing.cases import Case, cases


@pytest.mark.parametrize("case", cases(), ids=str)
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_contract(clause: Callable[[Case], None], case: Case) -> None:
    clause(case)


def test_the_whole_catalogue_is_covered() -> None:
    covered = {case.algorithm.name for case in cases()} | {case.objective.name for case in cases()}
    assert catalogue().keys() <= covered
    objectives = [method for method in catalogue().values() if issubclass(method, Objective)]
    assert {method.labels for method in objectives if method.reference} <= {case.kind for case in cases()}
