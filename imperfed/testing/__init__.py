"""The contract suite: what every run relies on, checked on a method of your own by `check(MyMethod())`."""

from __future__ import annotations

from collections.abc import Callable

from imperfed.algorithms import catalogue
from imperfed.core.algorithm import Algorithm
from imperfed.core.objective import Objective
from imperfed.core.registry import find
from imperfed.core.threads import one_thread
from imperfed.testing import clauses, held_out_clause, mishaps
from imperfed.testing.cases import Case, cases_of
from imperfed.testing.recipes import every_recipe_is_followed

CLAUSES: tuple[Callable[[Case], None], ...] = (
    clauses.same_seed_same_bits,
    clauses.workers_make_no_difference,
    clauses.one_program_for_all_makes_no_difference,
    clauses.resuming_makes_no_difference,
    held_out_clause.the_best_round_is_found_again,
    clauses.truth_makes_no_difference,
    clauses.inputs_are_not_mutated,
    clauses.nothing_changes_before_an_answer_is_accepted,
    clauses.padding_makes_no_difference,
    clauses.order_of_answers_makes_no_difference,
    clauses.one_client_works,
    clauses.sites_do_not_see_each_other,
    clauses.uploads_hold_no_rows,
    clauses.it_learns,
    clauses.beliefs_are_probabilities,
    clauses.methods_hold_nothing_but_their_settings,
    mishaps.a_site_that_drops_out_is_left_out,
    mishaps.nan_is_refused,
    mishaps.wrong_shapes_are_refused,
    mishaps.the_quorum_holds,
    mishaps.local_steps_are_static,
)


def check(method: Algorithm | Objective | type[Algorithm] | type[Objective] | str) -> None:
    """Check an algorithm or an objective on toy federations; raise `AssertionError` naming the clause that fails.

    `method`: an instance, or a class, a name or an import path, which are checked with their default settings.
    """
    if isinstance(method, str):
        method = find("algorithm", method, catalogue())
    if isinstance(method, type) and issubclass(method, Algorithm | Objective):
        method = method()
    if not isinstance(method, Algorithm | Objective):
        raise TypeError(f"check takes an Algorithm or an Objective, such as check(MyMethod()); got {method!r}")
    for case in cases_of(method):
        for clause in (*CLAUSES, every_recipe_is_followed):
            _hold(clause, case)


def _hold(clause: Callable[[Case], None], case: Case) -> None:
    """Check one clause. Tensors are so small that more than one thread would only slow it down."""
    try:
        with one_thread():
            clause(case)
    except Exception as error:
        asked = (clause.__doc__ or "").split("\n")[0].removeprefix("Check ").rstrip(".")
        detail = f": {type(error).__name__}: {error}" if str(error) else f" ({type(error).__name__})"
        raise AssertionError(f"{case} breaks the clause {clause.__name__} ({asked}){detail}") from error
