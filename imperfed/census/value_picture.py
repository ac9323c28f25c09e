"""The picture of the input values: one panel per column, and in it one box per site."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from imperfed.census.input_values import ColumnValues, SiteValues
from imperfed.census.png import save, styled
from imperfed.report.plots import ACCENT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ACROSS = 4
"""Panels side by side."""
MOST_PANELS = 16
"""The most columns that are drawn; if there are more: those whose sites differ most."""
MOST_SITES = 20
"""The most sites in a panel; if there are more: the largest ones."""
WIDE = 50.0
"""The ratio of the usual values of two sites from which an axis is logarithmic."""
FAR = 3.0
"""How many times the range of the middle 90 % an extreme lies outside it before it is written beside the box."""


def draw_values(sites: Sequence[SiteValues], path: Path) -> None:
    """Write the picture as a PNG file: boxes of quartiles, and lines over the middle 90 % of a site's values."""
    from matplotlib.figure import Figure

    names = sorted([*sites[0].numbers], key=lambda name: -_unlike([site.numbers[name] for site in sites]))
    names = [name for name in sites[0].numbers if name in names[:MOST_PANELS]]
    sites = sorted(sites, key=lambda site: -site.numbers[names[0]].rows)[:MOST_SITES]
    sites = sorted(sites, key=lambda site: site.site)
    across = min(ACROSS, len(names))
    down = -(-len(names) // across)
    size = 1.2 + 2.5 * across, 0.5 + down * (0.75 + 0.2 * len(sites))
    with styled():
        figure = Figure(figsize=(size[0], min(size[1], 40.0)), layout="constrained")
        panels = figure.subplots(down, across, squeeze=False).flatten()
        for ax, name in zip(panels, names, strict=False):
            _panel(ax, name, [site.numbers[name] for site in sites])
        for ax in panels[len(names) :]:
            ax.set_visible(False)
        for ax in panels[: len(names) : across]:  # the first of every row
            ax.set_yticks(range(len(sites)), [_cut(site.site) for site in sites], parse_math=False)
        save(figure, path)


def _panel(ax: Axes, name: str, sites: Sequence[ColumnValues]) -> None:
    known = [(k, column) for k, column in enumerate(sites) if column.known]
    _draw_boxes(ax, [(k, column) for k, column in known if column.distinct != 2])
    _draw_means(ax, [(k, column) for k, column in known if column.distinct == 2])
    _set_axis(ax, [column for _, column in known])
    for k, column in enumerate(sites):
        if remark := _remark(column):
            place, within = (1.01, k), ax.get_yaxis_transform()
            ax.annotate(remark, place, xycoords=within, va="center", fontsize=6, color=INK, parse_math=False)
    ax.set_title(_cut(name), fontsize=9, loc="left", parse_math=False)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=7)
    ax.set_yticks([])
    ax.set_ylim(len(sites) - 0.4, -0.6)


def _draw_boxes(ax: Axes, sites: Sequence[tuple[int, ColumnValues]]) -> None:
    """Draw the middle 90 % of values as a line, the middle half as a box, and the median."""
    if sites:
        places = [k for k, _ in sites]
        low, q1, median, q3, high = zip(*(column.quantiles for _, column in sites), strict=True)
        ax.hlines(places, low, high, color=ACCENT, linewidth=1)
        ax.hlines(places, q1, q3, color=ACCENT, linewidth=6, alpha=0.45)
        ax.plot(median, places, "|", color=INK, markersize=8, markeredgewidth=1.6)


def _draw_means(ax: Axes, sites: Sequence[tuple[int, ColumnValues]]) -> None:
    """Draw the mean of columns with two values, which says how often each occurs."""
    if sites:
        places, ends = [k for k, _ in sites], [(column.low, column.high) for _, column in sites]
        shares = [column.high.rows / column.known for _, column in sites]
        means = [a.value + (b.value - a.value) * share for (a, b), share in zip(ends, shares, strict=True)]
        ax.hlines(places, [a.value for a, _ in ends], [b.value for _, b in ends], color=ACCENT, linewidth=0.5)
        ax.plot(means, places, "o", color=ACCENT, markersize=4)


def _remark(column: ColumnValues) -> str:
    """Return the share of blanks, and extremes so far out that they are not drawn."""
    remarks = [f"{100 * column.blanks / column.rows:.0f} % blank"] if column.blanks else []
    reach = FAR * (column.quantiles[-1] - column.quantiles[0])
    if column.known and reach:
        remarks += [f"min {column.low.value:g}"] if column.low.value < column.quantiles[0] - reach else []
        remarks += [f"max {column.high.value:g}"] if column.high.value > column.quantiles[-1] + reach else []
    return "\n".join(remarks)


def _set_axis(ax: Axes, sites: Sequence[ColumnValues]) -> None:
    """Choose a logarithmic axis if the usual values of sites differ by orders of magnitude."""
    medians = [abs(column.quartiles[1]) for column in sites if column.quartiles[1]]
    if not medians or max(medians) < WIDE * min(medians):
        ax.locator_params(axis="x", nbins=5)
        return
    if all(column.quantiles[0] > 0 for column in sites):
        ax.set_xscale("log")
    else:
        ax.set_xscale("symlog", linthresh=min(medians))


def _unlike(sites: Sequence[ColumnValues]) -> float:
    """Return how far the medians of sites lie apart, in units of their quartiles."""
    known = [column for column in sites if column.known]
    medians = [column.quartiles[1] for column in known]
    width = sum(column.box for column in known)
    return (max(medians) - min(medians)) / width * len(known) if known and width > 0 else 0.0 if known else -math.inf


def _cut(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"
