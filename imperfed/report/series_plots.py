"""Pictures of several runs: their curves in one figure, and their figures with intervals one below the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imperfed.report import plots

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1, 2)))
"""Not every reader can distinguish the colours, so curves differ in their dashes as well."""


BELOW = 0.28
"""How far single values lie below their mean, in rows."""


@dataclass(frozen=True)
class Ranged:
    """A figure with its interval and what it is the mean of."""

    name: str
    mean: float
    low: float | None
    high: float | None
    values: Sequence[float] = ()


def several_curves(name: str, label: str, curves: Mapping[str, Mapping[int, float]], ylabel: str) -> Markup:
    """Draw one line per name over the rounds; at most as many as there are colours."""

    def draw(ax: Axes) -> None:
        for number, (title, curve) in enumerate(curves.items()):
            rounds = sorted(curve)
            marker = "o" if len(rounds) == 1 else ""
            colour, dashes = plots.SERIES[number], DASHES[number % len(DASHES)]
            ax.plot(
                rounds, [curve[r] for r in rounds], color=colour, linestyle=dashes, marker=marker, label=plain(title)
            )
        ax.set(xlabel="round", ylabel=ylabel)
        ax.margins(x=0.02)
        plots.up_to_all(ax, ylabel)
        plots.whole_rounds(ax, {number for curve in curves.values() for number in curve})
        ax.grid(axis="y", color=plots.QUIET, alpha=0.2, linewidth=0.6)
        columns = 1 if max(map(len, curves)) > 24 else 2
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, borderpad=0, columnspacing=1.2)

    lines = -(-len(curves) // (1 if max(map(len, curves)) > 24 else 2))
    return plots.render(name, label, 2.6 + 0.16 * lines, draw)


def ranges(name: str, label: str, rows: Sequence[Ranged], xlabel: str, zero: str = "") -> Markup:
    """Draw means as points, intervals as lines and single values as small points below; `zero` names a line at 0."""

    def draw(ax: Axes) -> None:
        for y, row in enumerate(rows):
            ax.scatter(row.values, [y + BELOW] * len(row.values), s=9, color=plots.QUIET, linewidth=0)
            if row.low is not None and row.high is not None:
                ax.plot([row.low, row.high], [y, y], color=plots.ACCENT, linewidth=1.4, zorder=1)
            ax.scatter([row.mean], [y], s=30, color=plots.ACCENT, zorder=3)
        if zero:
            ax.axvline(0, color=plots.QUIET, linewidth=0.8, linestyle=(0, (4, 2)))
            ax.text(0, -0.85, plain(zero), ha="center", va="center", fontsize=7)
        ax.set_yticks(range(len(rows)), [shortened(row.name) for row in rows], parse_math=False)
        ax.set_ylim(len(rows) - 0.5, -0.6)
        ax.set(xlabel=xlabel)
        ax.margins(x=0.06)
        ax.grid(axis="x", color=plots.QUIET, alpha=0.2, linewidth=0.6)

    return plots.render(name, label, 0.8 + 0.27 * len(rows), draw)


def shortened(name: str) -> str:
    """Return a name that leaves room for the figures."""
    return name if len(name) <= 26 else f"{name[:25]}…"


def plain(text: str) -> str:
    """Return a text in which no dollar begins a formula."""
    return text.replace("$", r"\$")
