"""Every clause of the contract for every method of the catalogue. A new method needs no edit here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from imperfed.algorithms import catalogue
from imperfed.core.objective import Objective
from tests.contract import checks, mishaps
from tests.contract.cases import Case, cases

CLAUSES: tuple[Callable[[Case], None], ...] = (
    checks.same_seed_same_bits,
    checks.workers_make_no_difference,
    checks.one_program_for_all_makes_no_difference,
    checks.resuming_makes_no_difference,
    checks.truth_makes_no_difference,
    checks.inputs_are_not_mutated,
    checks.nothing_changes_before_an_answer_is_accepted,
    checks.padding_makes_no_difference,
    checks.order_of_answers_makes_no_difference,
    checks.one_client_works,
    checks.sites_do_not_see_each_other,
    checks.uploads_hold_no_rows,
    checks.it_learns,
    checks.beliefs_are_probabilities,
    checks.methods_hold_nothing_but_their_settings,
    mishaps.a_site_that_drops_out_is_left_out,
    mishaps.nan_is_refused,
    mishaps.wrong_shapes_are_refused,
    mishaps.the_quorum_holds,
    mishaps.local_steps_are_static,
)


@pytest.mark.parametrize("case", cases(), ids=str)
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_contract(clause: Callable[[Case], None], case: Case) -> None:
    clause(case)


def test_the_whole_catalogue_is_covered() -> None:
    covered = {case.algorithm.name for case in cases()} | {case.objective.name for case in cases()}
    assert catalogue().keys() <= covered
    objectives = [method for method in catalogue().values() if issubclass(method, Objective)]
    assert {method.labels for method in objectives if method.reference} <= {case.kind for case in cases()}
