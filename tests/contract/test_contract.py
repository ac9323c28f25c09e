"""The contract for every method of the catalogue. A new method needs no edit here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from imperfed.algorithms import catalogue
from imperfed.algorithms.fedavg import FedAvg
from imperfed.core.labels import Exact
from imperfed.core.objective import Objective
from imperfed.testing import CLAUSES, clauses, held_out_clause
from imperfed.testing.cases import Case, cases

Clause = Callable[[Case], None]
OF_LABELS: tuple[Clause, ...] = (
    clauses.workers_make_no_difference,
    clauses.one_program_for_all_makes_no_difference,
    clauses.resuming_makes_no_difference,
    clauses.it_learns,
)
"""What may depend on how an algorithm and the labels fit together."""


def asked(case: Case) -> list[Clause]:
    """Return the clauses for a case: all of them, once for every objective and once for every algorithm.

    An algorithm that takes any labels is held to all clauses with exact ones, and to those `OF_LABELS` with the others.
    """
    plain = isinstance(case.algorithm, FedAvg)
    if case.algorithm.objective is None and not plain and case.kind is not Exact:
        return list(OF_LABELS)
    once = held_out_clause.the_best_round_is_found_again  # objectives have no part in it beyond their kind of labels
    return [clause for clause in CLAUSES if clause is not once or not plain or case.objective.reference]


HELD = [(clause, case) for case in cases() for clause in asked(case)]


@pytest.mark.parametrize(("clause", "case"), HELD, ids=lambda part: getattr(part, "__name__", str(part)))
def test_contract(clause: Clause, case: Case) -> None:
    clause(case)


def test_the_whole_catalogue_is_covered() -> None:
    covered = {case.algorithm.name for case in cases()} | {case.objective.name for case in cases()}
    assert catalogue().keys() <= covered
    objectives = [method for method in catalogue().values() if issubclass(method, Objective)]
    assert {method.labels for method in objectives if method.reference} <= {case.kind for case in cases()}


def test_every_method_is_held_to_all_clauses_once() -> None:
    judged_by_rounds = {held_out_clause.the_best_round_is_found_again}
    held: dict[str, set[Clause]] = {}
    for clause, case in HELD:
        for name in {case.algorithm.name, case.objective.name}:
            held.setdefault(name, set()).add(clause)
    for name in catalogue():
        assert set(CLAUSES) - judged_by_rounds <= held[name], name
