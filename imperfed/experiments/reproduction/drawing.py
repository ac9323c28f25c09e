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
from imperfed.report.plots import QUIET, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL, LEGEND = (3.0, 2.6), 1.6
"""Inches: of a panel, and the width of the legend beside all of them."""
ABREAST = 3
"""The most panels in one line, of which there are two otherwise; with the legend they fill a page."""
LETTERS = 40
"""Letters that fit below a panel; longer names of columns are slanted."""
WHITE = {"figure.facecolor": "white", "axes.facecolor": "white", "savefig.facecolor": "white"}
"""Lines of many colours are told apart on white, also on a dark page."""
DASHES = ("-", "--", ":")
"""One for every ten rows, whose colours are the same."""


def draw(
    study: Study,
    cells: StudyCells,
    columns: Sequence[StudyColumn],
    words: Mapping[str, Any] | None,
    path: Path,
    about: str | None = None,
) -> None:
    """Write what the study draws as an SVG file; nothing where it draws nothing or there are no results.

    `about` stands in the file and is not seen.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    shown = drawn(study, cells, columns, words)
    if not shown:
        return
    panels = len(shown) if study.draw == "curves" else 1
    lines = 1 if panels <= ABREAST else 2
    across = -(-panels // lines)
    with style.context(["default", STYLE | WHITE]), warnings.catch_warnings():
        legend = LEGEND if len(study.rows) > 1 else 0.0
        figure = Figure(figsize=(PANEL[0] * across + legend, PANEL[1] * lines), layout="constrained")
        # Columns that differ in one setting are compared with each other; others, such as two datasets, are not.
        axes = list(figure.subplots(lines, across, squeeze=False, sharey=bool(study.axis)).flat)
        if study.draw == "curves":
            for ax, column in zip(axes, shown, strict=False):
                _curves(ax, study, cells, column, words)
        else:
            _over_axis(axes[0], study, cells, shown, words)
        for ax in axes[:panels:across]:
            ax.set_ylabel(measure(study.measures[0]).title)
        _finish(figure, axes[:panels])
        for ax in axes[panels:]:
            ax.remove()
        # Neither the time nor the version of matplotlib stands in the file.
        metadata = {"Date": None, "Creator": None, "Description": about}
        write_whole(path, lambda partly: figure.savefig(partly, format="svg", metadata=metadata))


def drawn(
    study: Study, cells: StudyCells, columns: Sequence[StudyColumn], words: Mapping[str, Any] | None = None
) -> list[StudyColumn]:
    """Return the columns that are drawn: those with results; none where the study draws nothing."""
    if not study.draw:
        return []
    return [column for column in columns if any(cells.of(study, row, column, words) for row in study.rows)]


def _finish(figure: Figure, axes: Sequence[Axes]) -> None:
    """Draw lines of the grid, and the legend of several rows beside the panels, where it hides nothing."""
    for ax in axes:
        ax.grid(axis="y", color=QUIET, alpha=0.2, linewidth=0.6)
    lines = {text: line for ax in axes for line, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    if len(lines) > 1:
        figure.legend(lines.values(), lines.keys(), loc="outside right center", fontsize=7)


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
    ax.set_xlabel("round")


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
        ax.errorbar(
            [x for x, _ in known],
            [statistics.fmean(y) for _, y in known],
            spreads,
            label=row.name,
            marker="o",
            markersize=4,
            linewidth=1.2,
        )
    names = [column.name for column in shown]
    ax.set_xticks(list(places), names)
    if len("".join(names)) > LETTERS:
        ax.tick_params(axis="x", rotation=25)
    ax.set_xlabel(study.axis)
