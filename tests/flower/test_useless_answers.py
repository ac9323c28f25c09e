"""Whose numbers they are, where nothing can be made of what all sites sent for a repair."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.context import ServerView
from imperfed.core.errors import DataError, QuorumError
from imperfed.core.exchange import Query, Updates
from imperfed.engine.conversation import missing
from imperfed.engine.failures import NotFinite
from imperfed.flower.coordinator.useless_answers import merged

CONTEXT = ServerView(classes=("a", "b"), sites=("north", "south", "west"), trusted=None)


def roots(server: Tree, updates: Updates, context: ServerView) -> Tree:
    """Factor the sum of what all sites sent; the smallest part must be positive."""
    total = torch.stack([answer["sum"] for answer in updates.parts]).sum(0)
    return server | {"root": torch.linalg.cholesky(total)}


def logarithms(server: Tree, updates: Updates, context: ServerView) -> Tree:
    return server | {"log": torch.stack([answer["sum"] for answer in updates.parts]).sum(0).log()}


def asked(step: object, *sums: Tensor, last: str = "end") -> Tree:
    exchange = Query("first", step, respond=lambda site: {})  # type: ignore[arg-type]
    updates = Updates(tuple(range(len(sums))), torch.ones(len(sums)), {}, tuple({"sum": one} for one in sums))
    return merged(last, exchange, {"kept": torch.ones(1)}, updates, CONTEXT)


ONE = torch.eye(2)


def test_what_works_is_what_the_exchange_returns() -> None:
    found = asked(roots, ONE, ONE, 2 * ONE)
    assert torch.equal(found["root"], 2 * ONE)
    assert "kept" in found


@pytest.mark.parametrize(("step", "why"), [(roots, "linalg.cholesky"), (logarithms, "'log' would not be a number")])
def test_the_site_without_which_it_works_is_named(step: object, why: str) -> None:
    with pytest.raises(QuorumError, match=rf"every site. south: .*refused: nothing .* 'first' \({why}"):
        asked(step, ONE + 1, -9 * (ONE + 1), ONE + 1)


def test_no_one_is_named_where_several_are_to_blame_or_any_of_them_might_be() -> None:
    with pytest.raises(torch.linalg.LinAlgError):  # without either of two the other is left
        asked(roots, -9 * ONE, ONE, -9 * ONE)
    with pytest.raises(torch.linalg.LinAlgError):  # each of the two would do
        asked(roots, torch.diag(torch.tensor([2.0, -1.0])), torch.diag(torch.tensor([-1.0, 2.0])) - ONE, 0 * ONE)


def test_what_no_other_exchange_rests_on_may_be_unknown() -> None:
    assert asked(logarithms, -ONE, last="first")["log"].isnan().any()


def test_an_error_that_says_what_is_wrong_stays_as_it_is() -> None:
    def refuses(server: Tree, updates: Updates, context: ServerView) -> Tree:
        raise DataError("no rows are left")

    with pytest.raises(DataError, match="no rows are left"):
        asked(partial(refuses), ONE)


@pytest.mark.parametrize(("failed", "sites", "told"), [(1, 3, False), (2, 3, True), (2, 4, False), (2, 2, False)])
def test_where_most_answers_fail_at_once_what_they_were_sent_is_suspected(failed: int, sites: int, told: bool) -> None:
    error = missing({f"site{k}": NotFinite("not finite") for k in range(failed)}, sites)
    assert str(error).startswith("a repair needs an answer from every site. site0: not finite")
    assert ("made of all sites' earlier answers" in str(error)) is told
