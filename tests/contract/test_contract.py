"""Every clause of the contract for every method of the catalogue. A new method needs no edit here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from imperfed.algorithms import catalogue
from imperfed.core.objective import Objective
from imperfed.testing import CLAUSES, held_out_clause
from imperfed.testing.cases import Case, cases

FEW = {"fedavg", "fedalc", "fedpsl", "ifca", "local-only", "pfedpll", "pooled", "scaffold"}
"""Methods of every kind of memory: the clause about held-out rows asks nothing of a method that others do not ask."""


@pytest.mark.parametrize("case", cases(), ids=str)
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_contract(clause: Callable[[Case], None], case: Case) -> None:
    if clause is not held_out_clause.the_best_round_is_found_again or case.algorithm.name in FEW:
        clause(case)


def test_the_whole_catalogue_is_covered() -> None:
    covered = {case.algorithm.name for case in cases()} | {case.objective.name for case in cases()}
    assert catalogue().keys() <= covered
    objectives = [method for method in catalogue().values() if issubclass(method, Objective)]
    assert {method.labels for method in objectives if method.reference} <= {case.kind for case in cases()}
