"""Figures as PNG files, whose letters have to come from the fonts of this machine."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from imperfed.report.plots import STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FURTHER = ("CJK", "Arabic", "Devanagari", "Hebrew", "Thai", "Unifont")
"""Words in the names of fonts with letters that the usual one lacks."""


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the style of the pages, on white. Names may have letters that no font here has: boxes, and no warning."""
    from matplotlib import font_manager, style

    fonts = ["DejaVu Sans", *(name for name in font_manager.get_font_names() if any(word in name for word in FURTHER))]
    on_white = {"figure.facecolor": "white", "savefig.facecolor": "white", "font.family": fonts}
    with style.context(["default", STYLE, on_white]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def save(figure: Figure, path: Path) -> None:
    """Write a figure, the same bytes for the same figure."""
    figure.savefig(path, dpi=150, format="png", metadata={"Software": None})
