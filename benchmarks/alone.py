"""What `auto` reaches, beside what sites do alone and single methods: `python benchmarks/alone.py [NAME ...]`.

Each federation has test rows of its own, which no choice sees; settings are chosen on rows held out. The references are
models that sites fit alone with scikit-learn (chosen on held-out rows, fitted to all rows), every single method at its
defaults, and the method that a newcomer would try first. Prints a table in Markdown after every federation, and appends
a line per run to `--out` (a .jsonl file), from which it goes on if it is started again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from imperfed.experiments.auto.reference import alone_scores
from imperfed.experiments.auto.run import start_any
from imperfed.experiments.config import resolve
from imperfed.experiments.experiment import Watch, load_data, start

CANDIDATES, EXACT, ANNOTATED = ("pfedpll", "fedavg+cc"), ("fedavg", "fedprox"), ("fedavg", "fedpsl")
FEDERATIONS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "digits, candidates": ({"data": "digits"}, CANDIDATES),
    "digits, candidates, skewed": ({"data": "digits", "beta": 0.1, "sites": 8}, CANDIDATES),
    "digits, exact": ({"data": "digits", "kind": "exact"}, EXACT),
    "digits, wrong labels": ({"data": "digits", "kind": "exact", "noise": "class-independent"}, EXACT),
    "lost": ({"data": "lost"}, CANDIDATES),
    "birdsong": ({"data": "birdsong"}, CANDIDATES),
    "birdsong, skewed": ({"data": "birdsong", "beta": 0.1, "sites": 8}, CANDIDATES),
    "compas": ({"data": "compas"}, CANDIDATES),
    "student": ({"data": "student"}, CANDIDATES),
    "wisdm, users": ({"data": "wisdm", "kind": "exact", "partition": "column"}, EXACT),
    "pneumoniamnist": ({"data": "pneumoniamnist", "kind": "exact"}, EXACT),
    "chestxray14": ({"data": "chestxray14"}, ANNOTATED),
}


def main() -> None:
    """Run the federations named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of: {'; '.join(FEDERATIONS)}")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--budget", type=float, default=5.0)
    parser.add_argument("--out", type=Path, default=Path("alone.jsonl"))
    options = parser.parse_args()
    names = options.names or list(FEDERATIONS)
    for name in names:
        for seed in map(int, options.seeds.split(",")):
            run_federation(name, seed, options.budget, options.out)
        print(table(options.out), flush=True)


def run_federation(name: str, seed: int, budget: float, out: Path) -> None:
    """Run `auto` and its references with one seed, except those whose figures are known already."""
    settings, methods = FEDERATIONS[name]
    words = {**settings, "seed": seed, "data_seed": seed}
    known = {(r["federation"], r["seed"], r["what"]) for r in lines(out)}
    for what in ("alone", *methods, "auto"):
        if (name, seed, what) not in known:
            record = {"federation": name, "seed": seed, "what": what, **measure(what, words, budget)}
            with out.open("a") as file:
                file.write(json.dumps(record) + "\n")


def measure(what: str, words: dict[str, Any], budget: float) -> dict[str, Any]:
    """Return the figure of `auto`, of models alone, or of one method, in per cent."""
    with tempfile.TemporaryDirectory() as folder:
        if what == "auto":
            _, summary = start_any(None, {**words, "method": what, "budget": budget}, Path(folder), Watch())
            assert summary.auto is not None
            return {"value": 100 * (summary.headline or 0), "chosen": summary.title, "says": summary.auto.sentence()}
        if what == "alone":
            config = resolve(words=words | {"method": "fedavg"})
            scores = alone_scores(config, load_data(config))
            if isinstance(scores, str):
                return {"value": None, "why": scores}
            leading = [next(iter(site.values()))[0] for site in scores.values()]
            return {"value": 100 * statistics.fmean(leading)}
        _, summary = start(resolve(words=words | {"method": what}), Path(folder), Watch())
        return {"value": 100 * (summary.headline or 0)}


def lines(out: Path) -> list[dict[str, Any]]:
    """Return the runs that are done."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def table(out: Path) -> str:
    """Return the means over the seeds, one row per federation."""
    done = lines(out)
    rows = ["| federation | seeds | auto | alone | best single method |", "| --- | --- | --- | --- | --- |"]
    for name in dict.fromkeys(r["federation"] for r in done):
        own = [r for r in done if r["federation"] == name]
        means = {
            what: statistics.fmean(values)
            for what in dict.fromkeys(r["what"] for r in own)
            if (values := [r["value"] for r in own if r["what"] == what and r["value"] is not None])
        }
        single = {what: mean for what, mean in means.items() if what not in ("auto", "alone")}
        best = max(single, key=lambda what: single[what], default="")
        cells = [f"{means[what]:.1f}" if what in means else "" for what in ("auto", "alone")]
        seeds = len({r["seed"] for r in own})
        rows.append(f"| {name} | {seeds} | {cells[0]} | {cells[1]} | {single.get(best, 0):.1f} ({best}) |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
