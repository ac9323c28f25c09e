"""The picture of a census: sites by classes, each cell a bar of positive, negative and unknown rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from imperfed.census.figures import Census
from imperfed.census.png import save, styled
from imperfed.report.plots import ACCENT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS, GAP = 40, 2
"""The width of a cell's bar and of the gap between two cells, in steps."""
COLOURS = (ACCENT, "#d5dde5", "#f2b84b", "white")
"""Positive, negative, unknown; and the gap between cells."""
MOST_SITES, MOST_CLASSES = 12, 16
"""The most sites and classes for which cells show the number of rows that name the class."""
NAMES = 60
"""The most sites and classes that are all named; if there are more: every second, fifth, tenth ..."""


def draw(census: Census, path: Path) -> None:
    """Write the picture as a PNG file."""
    from matplotlib.figure import Figure

    K, C = len(census.sites), len(census.classes)
    size = min(2.2 + 0.55 * C, 16.0), min(1.6 + 0.34 * K, 9.0)
    with styled():
        figure = Figure(figsize=(max(size[0], 5.2), size[1]), layout="constrained")
        _cells(figure.add_subplot(), census)
        save(figure, path)


def shares(census: Census) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the steps of each part of a cell's bar, [sites, classes, 3]; at least one for a part that is not empty."""
    known = [(site.known.positive, site.known.negative, site.known.unknown) for site in census.sites]
    counts = np.stack([np.stack([part.numpy() for part in parts], -1) for parts in known])
    exact = counts / counts.sum(-1, keepdims=True) * PARTS
    parts = np.where(counts > 0, np.maximum(1, np.floor(exact)), 0).astype(np.int64)
    largest = parts.argmax(-1)[..., None]
    rest = PARTS - parts.sum(-1, keepdims=True)  # the remainder of rounding goes to the largest part
    np.put_along_axis(parts, largest, np.take_along_axis(parts, largest, -1) + rest, -1)
    return parts


def _cells(ax: Axes, census: Census) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    K, C = len(census.sites), len(census.classes)
    parts = shares(census)
    ends = parts.cumsum(-1)
    bars = (np.arange(PARTS + GAP)[:, None] >= ends[..., None, :]).sum(-1)  # the gap follows the three parts
    look: dict[str, Any] = {"cmap": ListedColormap(COLOURS), "vmin": 0, "vmax": 3, "interpolation": "none"}
    ax.imshow(bars.reshape(K, -1), extent=(-0.5, C - 0.5, K - 0.5, -0.5), aspect="auto", **look)
    if K <= NAMES:
        ax.hlines(np.arange(1, K) - 0.5, -0.5, C - 0.5, color="white", linewidth=3)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    names = [f"{site.name} ({site.rows})" for site in census.sites]
    ax.set_yticks(*_named(names), parse_math=False)
    ax.set_xticks(*_named(census.classes), rotation=45, ha="right", parse_math=False)
    if K <= MOST_SITES and C <= MOST_CLASSES:
        _numbers(ax, census)
    shown = [part for part in range(3) if parts[..., part].any()]
    patches = [Patch(facecolor=COLOURS[part], label=census.kind.legend[part]) for part in shown]
    ax.legend(handles=patches, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderpad=0.2, handlelength=1.2)


def _numbers(ax: Axes, census: Census) -> None:
    """Write the number of rows that name the class into each cell; blank for none."""
    for k, site in enumerate(census.sites):
        rows = census.kind.naming(site.known)
        for c in rows.nonzero().flatten().tolist():
            dark = site.known.positive[c] > 0.5 * site.rows
            ax.text(c, k, str(int(rows[c])), ha="center", va="center", fontsize=7, color="white" if dark else INK)


def _named(names: list[str] | tuple[str, ...]) -> tuple[range, list[str]]:
    step = next(s for k in range(9) for s in (10**k, 2 * 10**k, 5 * 10**k) if len(names) <= s * NAMES)
    return range(0, len(names), step), [n if len(n) <= 24 else f"{n[:23]}…" for n in names[::step]]
