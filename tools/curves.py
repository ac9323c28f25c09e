"""Draw the accuracy of the global model per round for every method of a comparison with one seed.

python tools/curves.py FOLDER PICTURE.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from imperfed.report.plots import STYLE
from imperfed.report.run_files import COMMON, by_metric
from imperfed.results.folder import RunFolder

LINES = ("-", "--", "-.", ":")


def main(folder: Path, picture: Path) -> None:
    """Draw one line per method, in the order of the table; methods without a global model are left out."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    methods = [line["method"] for line in json.loads((folder / "results.json").read_text())["lines"]]
    runs = sorted(folder.glob("*/config.toml"), key=lambda path: path.stat().st_mtime_ns)
    with matplotlib.rc_context(STYLE | {"figure.facecolor": "white", "axes.facecolor": "white"}):
        figure, ax = pyplot.subplots(figsize=(7.2, 3.6), layout="constrained")
        for number, (method, run) in enumerate(zip(methods, runs, strict=True)):
            course = by_metric(RunFolder(run.parent).records()).get(f"{COMMON}accuracy", {})
            if course:
                values = [100 * course[round]["*"][0] for round in course]
                ax.plot(list(course), values, LINES[number % len(LINES)], label=method, color=f"C{number}")
        ax.set(xlabel="round", ylabel="accuracy of the global model, %")
        ax.grid(axis="y", alpha=0.2)
        ax.legend(loc="lower right")
        figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
