"""A study's figure: curves over the rounds, one panel per column, or figures over the setting that varies."""

from __future__ import annotations

import statistics
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imperfed.core.atomic import write_whole
from imperfed.experiments.reproduction.measures import measure
from imperfed.experiments.reproduction.study_cells import StudyCell, StudyCells, values
from imperfed.experiments.study import Study, StudyColumn
from imperfed.report.plots import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANEL, LEGEND = (3.4, 3.0), 1.4
"""Inches: of a panel, and the width of the legend beside all of them."""
DASHES = ("-", "--", ":")
"""One for every ten rows, whose colours are the same."""


def draw(
    study: Study,
    cells: StudyCells,
    columns: Sequence[StudyColumn],
    words: Mapping[str, Any] | None,
    path: Path,
) -> None:
    """Write what the study draws as an SVG file; nothing where it draws nothing or there are no results."""
    from matplotlib import style
    from matplotlib.figure import Figure

    shown = [column for column in columns if any(cells.of(study, row, column, words) for row in study.rows)]
    if not study.draw or not shown:
        return
    panels = len(shown) if study.draw == "curves" else 1
    with style.context(["default", STYLE]), warnings.catch_warnings():
        figure = Figure(figsize=(PANEL[0] * panels + LEGEND, PANEL[1]), layout="constrained")
        axes = figure.subplots(1, panels, squeeze=False, sharey=True)[0]
        if study.draw == "curves":
            for ax, column in zip(axes, shown, strict=True):
                _curves(ax, study, cells, column, words)
        else:
            _over_axis(axes[0], study, cells, shown, words)
        axes[0].set_ylabel(measure(study.measures[0]).title)
        lines = {text: line for ax in axes for line, text in zip(*ax.get_legend_handles_labels(), strict=True)}
        figure.legend(lines.values(), lines.keys(), loc="outside right center", fontsize=6)
        write_whole(path, lambda partly: figure.savefig(partly, format="svg", metadata={"Date": None}))


def mean_curve(made: Iterable[StudyCell]) -> list[tuple[float, float]]:
    """Return the mean over the seeds after each round that all of them have."""
    made = [cell for cell in made if cell.curve]
    found: dict[float, list[float]] = defaultdict(list)
    for cell in made:
        for number, value in cell.curve:
            found[number].append(value)
    return [(number, statistics.fmean(known)) for number, known in sorted(found.items()) if len(known) == len(made)]


def _curves(ax: Axes, study: Study, cells: StudyCells, column: StudyColumn, words: Mapping[str, Any] | None) -> None:
    """Draw one line for every row over the rounds."""
    for number, row in enumerate(study.rows):
        if points := mean_curve(cells.of(study, row, column, words)):
            ax.plot(
                [x for x, _ in points],
                [100 * y for _, y in points],
                label=row.name,
                linewidth=1,
                linestyle=DASHES[number // 10],
                color=f"C{number % 10}",
            )
    ax.set_title(column.name)
    ax.set_xlabel("rounds")


def _over_axis(
    ax: Axes,
    study: Study,
    cells: StudyCells,
    shown: Sequence[StudyColumn],
    words: Mapping[str, Any] | None,
) -> None:
    """Draw one line for every row over the columns, in order."""
    name = study.measures[0]
    one, places = measure(name), range(len(shown))
    for row in study.rows:
        found = [
            (x, values(cells.of(study, row, column, words), name)) for x, column in zip(places, shown, strict=True)
        ]
        known = [(x, [one.scale * value for value in ours]) for x, ours in found if ours]
        spreads = [statistics.stdev(ours) if len(ours) > 1 else 0.0 for _, ours in known]
        ax.errorbar([x for x, _ in known], [statistics.fmean(y) for _, y in known], spreads, label=row.name, marker="o")
    ax.set_xticks(list(places), [column.name for column in shown])
    ax.set_xlabel(study.axis)
