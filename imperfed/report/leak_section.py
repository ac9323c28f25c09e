"""The report section on what a curious coordinator could reconstruct."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from imperfed.report import plots
from imperfed.report.run_files import RunFiles
from imperfed.report.sections import Picture, Section, ShownTable
from imperfed.report.words import count, per_cent
from imperfed.results.leak_summary import LIMITS, LeakSummary, RowPair

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GAP = 0.15
"""The space between two images, as a share of their width."""
COLUMNS = ("site", "rows visited", "recovered", "exactly", "by chance", "median distance", "labels wrong", "guessing")


def reconstruction(run: RunFiles) -> Section | None:
    """Describe what was reconstructed of the rows; None if it was not tried."""
    if (leak := run.leak) is None:
        return None
    text = " ".join((f"Tried on {leak.setting()}." if leak.sites else "", *leak.sentences())).strip()
    pictures = [drawn(leak)] if drawable(leak) else []
    title = "What a curious coordinator could reconstruct"
    return Section(title, text, pictures, "What this does not show", LIMITS, [by_site(leak)] if leak.sites else [])


def by_site(leak: LeakSummary) -> ShownTable:
    """Return the figures of every site attacked."""
    rows = [
        (
            site.site,
            count(site.rows),
            count(site.recovered),
            count(site.exact),
            count(site.by_chance),
            f"{site.distance:.2f}",
            "" if site.labels_wrong is None else per_cent(site.labels_wrong),
            "" if site.labels_guessed is None else per_cent(site.labels_guessed),
        )
        for site in leak.sites
    ]
    return ShownTable("Rows reconstructed, by site", COLUMNS, rows)


def drawable(leak: LeakSummary) -> bool:
    """Return whether rows are images."""
    return bool(leak.pairs) and len(leak.shape) == 3 and leak.shape[0] in (1, 3)


def drawn(leak: LeakSummary) -> Picture:
    """Draw the best reconstructions below the rows they stand for."""
    label = f"the {len(leak.pairs)} best reconstructions below the real rows, with their distances"
    svg = plots.render("leak", label, 0.4 + 2 * plots.WIDTH / max(len(leak.pairs), 4), lambda ax: mosaic(leak, ax))
    return Picture(svg, "The best reconstructions and the rows they were compared with; below, their distance.")


def mosaic(leak: LeakSummary, ax: Axes) -> None:
    """Put the images on the axes: real ones above, reconstructions below."""
    height, width = leak.shape[1:]
    for x, pair in enumerate(leak.pairs):
        for y, values in enumerate((pair.real, pair.made)):
            left, top = x * (1 + GAP) * width, y * (1 + GAP) * height
            extent = (left, left + width, top + height, top)
            ax.imshow(image(leak, values), cmap="gray", vmin=0, vmax=1, extent=extent, interpolation="none")
    ax.set_xlim(0, len(leak.pairs) * (1 + GAP) * width)
    ax.set_ylim(2 * (1 + GAP) * height, 0)
    ax.set_yticks([height / 2, (1.5 + GAP) * height], ["real", "made"])
    ax.set_xticks([(x * (1 + GAP) + 0.5) * width for x in range(len(leak.pairs))], distances(leak.pairs))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def distances(pairs: tuple[RowPair, ...]) -> list[str]:
    """Return how far each reconstruction is from its row, in words."""
    return [f"{pair.distance:.2f}" for pair in pairs]


def image(leak: LeakSummary, values: tuple[float, ...]) -> Any:
    """Return pixels as they are drawn, from the darkest to the brightest of all real rows."""
    real = np.array([pair.real for pair in leak.pairs])
    low, high = real.min(), real.max()
    pixels = ((np.array(values).reshape(leak.shape) - low) / max(high - low, 1e-12)).clip(0, 1)
    return pixels[0] if leak.shape[0] == 1 else np.moveaxis(pixels, 0, -1)
