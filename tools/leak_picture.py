"""Draw the best reconstructions of several attacks: `python tools/leak_picture.py docs/leak.svg LEAK.json ...`."""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib import style
from matplotlib.figure import Figure

from imperfed.report.leak_section import mosaic
from imperfed.report.plots import STYLE
from imperfed.results.leak_summary import LeakSummary


def draw(target: Path, files: list[Path]) -> None:
    """Draw one pair of rows of images per attack, below what was attacked."""
    with style.context(["default", STYLE]):
        figure = Figure(figsize=(6.2, 2.0 * len(files)), layout="constrained")
        for ax, file in zip(figure.subplots(len(files), squeeze=False)[:, 0], files, strict=True):
            leak = LeakSummary.from_json(file.read_text(encoding="utf-8"))
            mosaic(leak, ax)
            ax.set_title(", ".join(leak.setting().split(", ")[:2]))
        figure.savefig(target, dpi=110, metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    draw(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
