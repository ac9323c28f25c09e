"""What each method reached on each kind of labels, for the page that chooses one: tables and a picture.

`python -m studies.which_method docs/which-method.svg` draws the picture and prints the tables, from the runs of
`python -m benchmarks.alone`.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "alone.jsonl"
KINDS: Mapping[str, tuple[str, ...]] = {
    "candidate sets": (
        "birdsong",
        "birdsong, skewed",
        "compas",
        "digits, candidates",
        "digits, candidates, skewed",
        "lost",
        "student",
    ),
    "exact labels": ("digits, exact", "digits, wrong labels", "pneumoniamnist", "wisdm, users"),
    "missing labels": ("chestxray14", "hospitals"),
    "positives only": ("taggers",),
}
"""The federations of each kind of labels."""
REFERENCES = {
    "alone, classic": "alone, scikit-learn",
    "alone, network": "alone, network",
    "pooled, classic": "pooled, scikit-learn",
}


@cache
def means() -> dict[str, dict[str, float]]:
    """Return what every method and reference reached on every federation, the mean over its seeds."""
    values: dict[str, dict[str, list[float]]] = {}
    for line in map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines()):
        if line["value"] is not None:
            values.setdefault(line["federation"], {}).setdefault(line["what"], []).append(line["value"])
    return {name: {what: statistics.fmean(seeds) for what, seeds in all.items()} for name, all in values.items()}


def table(kind: str) -> Iterator[str]:
    """Yield the lines of a table in Markdown: the federations of one kind of labels, and what was reached on each."""
    found = [means()[name] for name in KINDS[kind]]
    methods = list(dict.fromkeys(what for one in found for what in one if what not in ("auto", *REFERENCES)))
    columns = ["auto", *methods, *REFERENCES]
    yield f"| {' | '.join(['federation', *(REFERENCES.get(one, f'`{one}`') for one in columns)])} |"
    yield "| --- " * (len(columns) + 1) + "|"
    for name, one in zip(KINDS[kind], found, strict=True):
        yield f"| {' | '.join([name, *(f'{one[what]:.1f}' if what in one else '' for what in columns)])} |"


def draw(picture: Path) -> None:
    """Draw one line per federation: what sites reach alone with scikit-learn, the best single method, and `auto`."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "imperfed"  # the same file every time
    names = [name for kind in KINDS.values() for name in kind][::-1]
    figure, ax = pyplot.subplots(figsize=(7.6, 4.6), layout="constrained")
    for place, name in enumerate(names):
        one = means()[name]
        alone = one["alone, classic"]
        best = max(value for what, value in one.items() if what not in ("auto", *REFERENCES))
        ax.plot([alone, one["auto"]], [place, place], color="0.8", linewidth=3, zorder=1)
        marks = {"scikit-learn, each site alone": alone, "best single federated method": best, "auto": one["auto"]}
        for number, (label, value) in enumerate(marks.items()):
            style = {"marker": "osD"[number], "color": ("0.45", "C1", "C0")[number], "s": 34}
            ax.scatter(value, place, label=label if place == 0 else None, zorder=2 + number, **style)
    ax.set_yticks(range(len(names)), names)
    at = len(names) - 0.5
    for kind in list(KINDS.values())[:-1]:
        at -= len(kind)
        ax.axhline(at, color="0.85", linewidth=0.8)
    ax.set_xlabel("accuracy on test rows, % (AUROC for chestxray14, hospitals and taggers)")
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
    print("\n\n".join("\n".join(table(kind)) for kind in KINDS))
