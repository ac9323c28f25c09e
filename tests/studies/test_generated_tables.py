"""Tables on pages of the documentation are those that the studies make of their files of results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from studies import class_by_class, missing_truth, no_harm, posterior, which_method

DOCS = Path(__file__).parents[2] / "docs"


def tables() -> Iterator[tuple[str, list[str]]]:
    """Every page with a table that belongs on it."""
    yield "audit.md", [*missing_truth.table(missing_truth.RESULTS)]
    yield "audit.md", [*class_by_class.table(class_by_class.RESULTS)]
    for which in ("again", "small", "trusted", "checked"):
        yield "noisy-labels.md", [line for line in no_harm.table(which) if line.startswith("|")]
    yield "noisy-labels.md", [line for line in no_harm.caution() if line.startswith("|")]
    results = posterior.read(posterior.RESULTS)
    for name in ("people", "digits", "rates", "sizes"):
        yield "repair-tables.md", [*posterior.table(results, name)]
    yield "repair-tables.md", [*posterior.harms(results)]
    for kind in which_method.KINDS:
        yield "which-method.md", [*which_method.table(kind)]


@pytest.mark.parametrize(("page", "lines"), tables())
def test_a_page_has_the_table_of_the_results(page: str, lines: list[str]) -> None:
    assert len(lines) > 2
    assert "\n".join(lines) in (DOCS / page).read_text(encoding="utf-8")
