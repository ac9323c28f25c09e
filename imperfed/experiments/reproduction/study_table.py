"""A study's table in Markdown: our figures, the paper's, and the difference where there is one figure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from imperfed.experiments.reproduction.measures import Measure, measure
from imperfed.experiments.reproduction.study_cells import StudyCell, StudyCells, values
from imperfed.experiments.study import Study, StudyColumn, StudyRow

WIDE = 2
"""With more measures, every column of the study has a table of its own."""


def markdown(
    study: Study, cells: StudyCells, columns: Sequence[StudyColumn], words: Mapping[str, Any] | None = None
) -> str:
    """Return the table of these columns, and below it which seeds, what diverged, and what was tuned."""
    shown = [column for column in columns if any(_made(study, cells, row, column, words) for row in study.rows)]
    if not shown:
        return f"{study.title}. Not run yet."
    apart = len(study.measures) > WIDE
    groups = [[column] for column in shown] if apart else [shown]
    several = len(study.columns) > 1
    tables = [
        (f"**{group[0].name}**\n\n" if apart and several else "")
        + _table(study, cells, group, words, several and not apart)
        for group in groups
    ]
    notes = " ".join(_notes(study, cells, columns, shown, words))
    return "\n\n".join([*tables, f"{study.title}. {notes}"])


def _made(
    study: Study, cells: StudyCells, row: StudyRow, column: StudyColumn, words: Mapping[str, Any] | None
) -> list[StudyCell]:
    """Return all cells of a row and a column: as the study says, and tuned."""
    return [cell for tuned in (False, True) for cell in cells.of(study, row, column, words, tuned)]


def _table(
    study: Study,
    cells: StudyCells,
    columns: Sequence[StudyColumn],
    words: Mapping[str, Any] | None,
    named: bool,
) -> str:
    """Return the table of some columns of the study; `named`: whether its columns say which."""
    table = {"method": [f"`{row.name}`" if row.name == row.method else row.name for row in study.rows]}
    if any(row.name != row.method for row in study.rows) and not study.program:
        table["as a command"] = [f"`{row.method}`" if row.name != row.method else "" for row in study.rows]
    for column in columns:
        table |= _of_column(study, cells, column, words, named)
    lines = [list(table), ["---"] * len(table), *map(list, zip(*table.values(), strict=True))]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _of_column(
    study: Study, cells: StudyCells, column: StudyColumn, words: Mapping[str, Any] | None, several: bool
) -> dict[str, list[str]]:
    """Return the columns of the table that are about one column of the study."""
    places = [(row, cells.of(study, row, column, words)) for row in study.rows]
    found: dict[str, list[str]] = {}
    untuned = any(made for _, made in places)
    for number, name in enumerate(study.measures):
        one, title = measure(name), f"{column.name}: {measure(name).title}" if several else measure(name).title
        if untuned:
            found[title] = [_cell(one, name, made) for _, made in places]
        paper = [_paper(column, row, number) for row, _ in places]
        if any(value is not None for value in paper):
            found[f"{title.removesuffix(', %')}, paper"] = [_plain(one, value) for value in paper]
            if len(study.measures) == 1 and untuned:
                ours = [values(made, name) for _, made in places]
                found[f"{column.name}: difference" if several else "difference"] = list(
                    map(_difference, [one] * len(ours), ours, paper)
                )
        tuned = [cells.of(study, row, column, words, tuned=True) for row in study.rows]
        if any(tuned):
            found[f"{title}, tuned alike"] = [_cell(one, name, made) for made in tuned]
    return found


def _paper(column: StudyColumn, row: StudyRow, number: int) -> float | None:
    figures = column.paper.get(row.name, ())
    return figures[number] if number < len(figures) else None


def _plain(one: Measure, value: float | None) -> str:
    return "" if value is None else f"{value:.{one.digits}f}"


def _cell(one: Measure, name: str, made: Sequence[StudyCell]) -> str:
    reached = values(made, name)
    found = one.spread(reached)
    if found and len(reached) < len(made):
        found += f" ({len(reached)} of {len(made)} seeds)"
    return found or ("diverged" if any(cell.diverged for cell in made) else "")


def _difference(one: Measure, ours: Sequence[float], paper: float | None) -> str:
    return f"{one.scale * statistics.fmean(ours) - paper:+.{one.digits}f}" if ours and paper is not None else ""


def _notes(
    study: Study,
    cells: StudyCells,
    columns: Sequence[StudyColumn],
    shown: Sequence[StudyColumn],
    words: Mapping[str, Any] | None,
) -> Iterator[str]:
    """Yield sentences about the seeds, and about what the table does not show."""
    made = [cell for row in study.rows for column in shown for cell in _made(study, cells, row, column, words)]
    seeds = sorted({cell.seed for cell in made})
    if len(seeds) == 1:
        yield f"Seed {seeds[0]}."
    else:
        yield f"Seeds {', '.join(map(str, seeds))}, each with its own split; ± is the sample standard deviation."
    if missing := [column.name for column in columns if column not in shown and not column.no_data]:
        yield f"Not run yet: {', '.join(missing)}."
    absent = [row.name for row in study.rows if not any(_made(study, cells, row, column, words) for column in shown)]
    if absent:
        yield f"Not run yet: {', '.join(absent)}."
    few = {
        row.name
        for row in study.rows
        for column in shown
        for tuned in (False, True)
        if 0 < len(cells.of(study, row, column, words, tuned)) < len(seeds)
    }
    if few:
        yield f"With fewer seeds: {', '.join(sorted(few))}."
    for cell in made:
        if cell.diverged:
            yield f"{cell.row}{'' if cell.tuned is None else ', tuned'}, seed {cell.seed}: {cell.diverged}."
    if chosen := list(_chosen(study, cells, shown, words)):
        yield f"Tuned alike: {'; '.join(chosen)}."


def _chosen(
    study: Study, cells: StudyCells, shown: Sequence[StudyColumn], words: Mapping[str, Any] | None
) -> Iterator[str]:
    """Yield the settings that were chosen for every row."""
    for column in shown:
        for row in study.rows:
            if made := cells.of(study, row, column, words, tuned=True):
                said = ", ".join(f"{key} {_said(value)}" for key, value in (made[0].tuned or {}).items())
                yield f"{row.name} on {column.name} with {said}"


def _said(value: Any) -> str:
    """Return a setting's value: a number in short, anything else as it is written."""
    return f"{value:g}" if isinstance(value, float) else str(value)
