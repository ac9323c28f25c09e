"""Draw EOD over the rounds of several runs: `python tools/fairness_picture.py docs/fairness.svg RUN RUN ...`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from matplotlib import style
from matplotlib.figure import Figure

from imperfed.report.plots import INK, QUIET, STYLE
from imperfed.results.folder import RunFolder

COLOURS = (INK, "#c0392b", "#1f5f99", "#7a9a01", "#8e6bb0", "#c98a1b")


def course(folder: Path) -> tuple[str, list[float]]:
    """Return a description of a run, and its EOD by candidate group after each round."""
    config = RunFolder.open(folder).config()
    attack = config.attack.name if config.attack else "nobody attacks"
    defence = config.defence.name if config.defence else "no defence"
    lines = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return f"{attack}, {defence}", [line["value"] for line in lines if line["metric"] == "fair/eod/candidate"]


def draw(target: Path, folders: list[Path]) -> None:
    """Draw one line per run."""
    with style.context(["default", STYLE]):
        figure = Figure(figsize=(7.2, 3.4), layout="constrained")
        ax = figure.add_subplot()
        for (name, values), colour in zip(map(course, folders), COLOURS, strict=False):
            ax.plot(range(1, len(values) + 1), values, color=colour, label=name)
        ax.axhline(0, color=QUIET, linewidth=0.6)
        ax.set(xlabel="round", ylabel="EOD, by candidate group")
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]), [Path(word) for word in sys.argv[2:]])
