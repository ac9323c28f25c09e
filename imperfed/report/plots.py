"""Figures as SVG elements of a page: text stays text, and matplotlib's global settings are not changed."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from imperfed.report.words import short

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

ACCENT, INK, QUIET = "#1f5f99", "#2b2f33", "#7b828a"
SERIES = (ACCENT, "#b3590a", "#1b7a4b", "#7a4aa0", "#b0304a", "#0b7a84", "#7a6a10", "#8a5a3c")
"""The colours of several curves, readable on white."""
ON_A_PAGE = {
    INK: "var(--ink)",
    QUIET: "var(--axis)",
    ACCENT: "var(--accent)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES) if number},
}
"""The colours that a page sets by whether it is light or dark."""
SHADES = ((ACCENT, 0.07), (ACCENT, 1.0))  # one hue; what shines through is the page, be it light or dark
DARK = 0.72  # share of the fullest shade above which white text is easier to read than ink
WIDTH = 4.6  # inches: two figures fit side by side on a wide page, one fills a phone
LABELS = 26  # most names along one side of a heat map; if there are more: every second, fifth, tenth ...
LETTERS = 55  # letters that fit in a row below a heat map; longer names are rotated
CELLS = (20, 12)  # most rows and columns of a heat map with numbers in its cells
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "imperfed",
    "font.size": 8,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "text.color": INK,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
}


def curves(
    name: str,
    label: str,
    sites: Mapping[int, Sequence[float]],
    ylabel: str,
    one: str,
    common: Mapping[int, float] | None = None,
    common_name: str = "global model",
) -> Markup:
    """Draw the mean over the sites per round with a band from lowest to highest, and a line of the global model.

    `one` names the line if every round has a single value; `common_name` is what the other line shows.
    """

    def draw(ax: Axes) -> None:
        rounds = sorted(sites)
        several = any(len(values) > 1 for values in sites.values())
        marker = "o" if len(rounds) <= 12 else ""
        if several:
            low, high = ([pick(sites[r]) for r in rounds] for pick in (min, max))
            ax.fill_between(rounds, low, high, color=ACCENT, alpha=0.15, linewidth=0, label="lowest to highest site")
        mean = [math.fsum(sites[r]) / len(sites[r]) for r in rounds]
        ax.plot(rounds, mean, color=ACCENT, marker=marker, markersize=3, label="mean over sites" if several else one)
        if common:
            ax.plot(list(common), list(common.values()), color=INK, linestyle=(0, (4, 2)), label=common_name)
        ax.set(xlabel="round", ylabel=ylabel)
        ax.margins(x=0.02)
        whole_rounds(ax, rounds)
        up_to_all(ax, ylabel)
        ax.grid(axis="y", color=QUIET, alpha=0.2, linewidth=0.6)
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, borderpad=0, columnspacing=1.2)

    return render(name, label, 2.9, draw)


def whole_rounds(ax: Axes, rounds: Collection[int]) -> None:
    """Mark whole rounds on the x axis; of a single round matplotlib would mark fractions."""
    if len(rounds) == 1:
        ax.set_xticks([*rounds])
    else:
        ax.locator_params(axis="x", integer=True)


def up_to_all(ax: Axes, ylabel: str) -> None:
    """Let an axis of per cent end shortly outside 0 and 100, where no figure can lie."""
    if ylabel.endswith("%"):
        low, high = ax.get_ylim()
        ax.set_ylim(max(low, -1), min(high, 101))


def bars(name: str, label: str, lefts: ArrayLike, heights: ArrayLike, width: float, xlabel: str, ylabel: str) -> Markup:
    """Draw a histogram whose bars begin at `lefts`."""

    def draw(ax: Axes) -> None:
        ax.bar(lefts, heights, width=0.9 * width, align="edge", color=ACCENT)
        ax.set(xlabel=xlabel, ylabel=ylabel)
        ax.locator_params(axis="x", integer=width == 1)
        ax.locator_params(axis="y", integer=True)
        ax.yaxis.set_major_formatter("{x:,.0f}")
        ax.grid(axis="y", color=QUIET, alpha=0.2, linewidth=0.6)
        ax.set_axisbelow(True)

    return render(name, label, 2.6, draw)


def heat_map(
    name: str,
    label: str,
    counts: Sequence[Sequence[float]],
    rows: tuple[str, Sequence[str]],
    columns: tuple[str, Sequence[str]],
) -> Markup:
    """Draw counts by row and column, each side with its title and its names; zero is left blank."""
    values = np.asarray(counts, dtype=float)
    small = values.shape[0] <= CELLS[0] and values.shape[1] <= CELLS[1]

    def draw(ax: Axes) -> None:
        from matplotlib.colors import LinearSegmentedColormap

        shades = LinearSegmentedColormap.from_list("shades", SHADES)
        filled = np.where(values > 0, values, np.nan)
        image = ax.imshow(filled, cmap=shades, vmin=0, vmax=max(values.max(), 1), aspect="auto", interpolation="none")
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
        ax.set(ylabel=rows[0], xlabel=columns[0])
        ax.set_yticks(*_shown(rows[1]), parse_math=False)
        at, names = _shown(columns[1])
        upright = len(names) * (max(map(len, names)) + 1) > LETTERS
        ax.set_xticks(at, names, rotation=90 if upright else 0, parse_math=False)
        if small:
            _numbers(ax, values)
        else:
            bar = ax.figure.colorbar(image, ax=ax, fraction=0.04, pad=0.02)
            bar.outline.set_visible(False)
            bar.ax.tick_params(length=0)
            bar.ax.locator_params(axis="y", integer=True)

    return render(name, label, min(1.2 + 0.26 * len(values), 4.4), draw)


def _shown(names: Sequence[str]) -> tuple[Sequence[int], list[str]]:
    """Return the positions and the shortened names of as many labels as fit."""
    step = next(s for k in range(9) for s in (10**k, 2 * 10**k, 5 * 10**k) if len(names) <= s * LABELS)
    return range(0, len(names), step), [name if len(name) <= 16 else f"{name[:15]}…" for name in names[::step]]


def _numbers(ax: Axes, values: Any) -> None:
    top = values.max()
    for (i, j), value in np.ndenumerate(values):
        if value:
            colour = "white" if value > DARK * top else INK
            ax.text(j, i, short(round(value)), ha="center", va="center", fontsize=6.5, color=colour)


def render(name: str, label: str, height: float, draw: Callable[[Axes], None]) -> Markup:
    """Return what `draw` puts on the axes, under a name unique on the page and with a label in words."""
    from matplotlib import style
    from matplotlib.figure import Figure

    text = io.StringIO()
    with style.context(["default", STYLE]), warnings.catch_warnings():
        # The page is shown in the reader's fonts, not in those of this machine.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure.add_subplot())
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return embed(text.getvalue(), name, label)


def embed(document: str, name: str, label: str) -> Markup:
    """Return an SVG document as an element of a page: scalable, titled, its ids its own, its colours the page's."""
    from markupsafe import Markup

    opening, _, rest = document[document.index("<svg") :].partition(">")
    box = re.search(r'viewBox="[\d. ]+"', opening)
    assert box

    def on_this_page(tag: re.Match[str]) -> str:
        prefixed = re.sub(r'( id="|url\(#|href="#)', rf"\1{name}-", tag[0])
        return re.sub("|".join(ON_A_PAGE), lambda colour: ON_A_PAGE[colour[0]], prefixed)

    drawing = Markup(re.sub(r"<[^>]+>", on_this_page, rest))
    return Markup('<svg {} role="img" aria-labelledby="{}-title"><title id="{}-title">{}</title>{}').format(
        Markup(box[0]), name, name, label, drawing
    )
