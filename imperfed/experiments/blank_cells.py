"""Why a cell of a comparison is blank; methods that could not be measured get no row at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imperfed.experiments.comparison_line import Line


def with_figures(lines: Sequence[Line]) -> list[Line]:
    """Return the lines that have something to show: figures, or runs that diverged."""
    return [line for line in lines if line.values or line.diverged] or list(lines)


def reasons(lines: Sequence[Line]) -> Iterator[str]:
    """Yield one sentence for everything that is missing from the table of these lines."""
    shown = with_figures(lines)
    for line in lines:
        if line not in shown:
            yield f"{line.method}: not measured, {line.why_blank}"
    for figures, what in (
        ("common", "no one model for all sites"),
        ("labels", "infers no labels, or their truth is not known"),
    ):
        without = [line.method for line in shown if line.values and not getattr(line, figures)]
        if without and any(getattr(line, figures) for line in shown):
            yield f"{', '.join(without)}: {what}"
    if any(line.paper is not None for line in shown) and any(line.paper is None for line in shown):
        yield "paper: blank where the paper has no figure"
