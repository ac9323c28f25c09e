"""What `auto` reaches, beside everything that a user would do without it: `python -m benchmarks.alone [NAME ...]`.

Each federation has test rows of its own, which no choice sees; settings are chosen on rows that sites hold out.

    auto                `imperfed run --data X` within --budget minutes
    methods             those made for the labels, at their defaults; the first is what `inspect` advises after auto
    alone, network      the network of each site alone: loss, model and best round chosen on rows held out
    alone, classic      logistic regression, forest and boosting of scikit-learn at each site, chosen likewise
    pooled, classic     scikit-learn on all rows in one place, which privacy would forbid

Appends a line per run to `--out` (a .jsonl file), from which it goes on if it is started again, and prints a table.
Data are looked for in the folder IMPERFED_DATA. With `--jobs`, each job computes on one core.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

CANDIDATES, EXACT, ANNOTATED = ("pfedpll", "fedavg+cc", "fedavg+proden"), ("fedavg", "fedprox"), ("fedpsl", "fedavg")
EXAMPLE = "example "
"""Data that begin with this are an example that comes with imperfed."""
FEDERATIONS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "digits, candidates": ({"data": "digits"}, CANDIDATES),
    "digits, candidates, skewed": ({"data": "digits", "beta": 0.1, "sites": 8}, CANDIDATES),
    "digits, exact": ({"data": "digits", "kind": "exact"}, EXACT),
    "digits, wrong labels": ({"data": "digits", "kind": "exact", "noise": "uniform"}, EXACT),
    "lost": ({"data": "lost"}, CANDIDATES),
    "birdsong": ({"data": "birdsong"}, CANDIDATES),
    "birdsong, skewed": ({"data": "birdsong", "beta": 0.1, "sites": 8}, CANDIDATES),
    "compas": ({"data": "compas"}, CANDIDATES),
    "student": ({"data": "student"}, CANDIDATES),
    "wisdm, users": ({"data": "wisdm", "kind": "exact", "partition": "column"}, EXACT),
    "pneumoniamnist": ({"data": "pneumoniamnist", "kind": "exact"}, EXACT),
    "chestxray14": ({"data": "chestxray14"}, ANNOTATED),
    "hospitals": ({"data": f"{EXAMPLE}hospitals"}, ANNOTATED),
    "taggers": ({"data": f"{EXAMPLE}taggers"}, ("fedavg",)),
}
CLASSIC, NETWORK = ("logistic", "forest", "boosting"), ("network",)
ALONE = {"alone, classic": CLASSIC, "alone, network": NETWORK}
POOLED = "pooled, classic"


def main() -> None:
    """Run the federations named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of: {'; '.join(FEDERATIONS)}")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--budget", type=float, default=5.0)
    parser.add_argument("--jobs", type=int, default=1, help="federations side by side")
    parser.add_argument("--out", type=Path, default=Path("alone.jsonl"))
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    tasks = [(name, seed) for seed in seeds for name in options.names or FEDERATIONS]
    if options.jobs == 1:
        for name, seed in tasks:
            run_federation(name, seed, options.budget, options.out)
        failed = []
    else:
        failed = side_by_side(tasks, options.jobs, options.budget, options.out)
    print(table(options.out))
    if failed:
        sys.exit("not measured, try again: " + "; ".join(failed))


def side_by_side(tasks: list[tuple[str, int]], jobs: int, budget: float, out: Path) -> list[str]:
    """Run federations in so many processes, each on one core; return which failed, and why. The others go on."""
    os.environ["OMP_NUM_THREADS"] = "1"  # the processes inherit it
    failed = []
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(run_federation, *task, budget, out, 1): task for task in tasks}
        for job in as_completed(running):
            if error := job.exception():
                name, seed = running[job]
                failed.append(f"{name}, seed {seed} ({type(error).__name__}: {error})")
    return failed


def run_federation(name: str, seed: int, budget: float, out: Path, workers: int = 0) -> None:
    """Run `auto` and its references with one seed, except those whose figures are known already."""
    settings, methods = FEDERATIONS[name]
    known = {(r["federation"], r["seed"], r["what"]) for r in lines(out)}
    with tempfile.TemporaryDirectory() as folder:
        words = {**settings, "seed": seed, "data_seed": seed, "workers": workers}
        if words["data"].startswith(EXAMPLE):
            from imperfed.examples import example

            words["data"] = str(example(words["data"].removeprefix(EXAMPLE), Path(folder) / "data"))
        for what in ("auto", *methods, *ALONE, POOLED):
            if (name, seed, what) not in known:
                began = time.perf_counter()
                record = {"federation": name, "seed": seed, "what": what, **measure(what, words, budget, Path(folder))}
                with out.open("a") as file:
                    file.write(json.dumps(record | {"seconds": round(time.perf_counter() - began, 1)}) + "\n")


def measure(what: str, words: dict[str, Any], budget: float, folder: Path) -> dict[str, Any]:
    """Return the figure of `auto`, of a reference or of one method, in per cent."""
    from imperfed.experiments.auto.reference import alone_scores
    from imperfed.experiments.auto.run import start_any
    from imperfed.experiments.resolving import resolve
    from imperfed.experiments.run_data import load_data
    from imperfed.experiments.watch import Watch

    if what in ALONE or what == POOLED:
        config = resolve(words=words | {"method": "fedavg"})
        data = load_data(config)
        scores = pooled_scores(config, data) if what == POOLED else alone_scores(config, data, ALONE[what])
        if isinstance(scores, str):
            return {"value": None, "why": scores}
        leading = [next(iter(site.values()))[0] for site in scores.values()]
        return {"value": 100 * statistics.fmean(value for value in leading if value == value)}
    asked = {**words, "method": what} | ({"budget": budget} if what == "auto" else {})
    _, summary = start_any(None, asked, folder / what, Watch())
    said = {"chosen": summary.title, "says": summary.auto.sentence()} if summary.auto else {}
    return {"value": 100 * (summary.headline or 0), **said}


def pooled_scores(config: Any, data: Any) -> dict[int, Any] | str:
    """Return the figures of one scikit-learn model of all rows, chosen on the rows that sites hold out."""
    from imperfed.data.held_out import hold_out
    from imperfed.data.sparse import width
    from imperfed.experiments.auto.alone_search import families, fit_alone, left_out, probabilities
    from imperfed.experiments.auto.reference import MINUTES
    from imperfed.experiments.auto.request import HELD_OUT
    from imperfed.experiments.run_parts import make_evaluator
    from imperfed.results.mixture import Mixture

    federation = data.federation
    if reason := left_out(federation, width(federation.x)):
        return reason
    held = hold_out(data, HELD_OUT, config.run.data_seed).federation
    seed, rows, judge = config.run.seed, held.pooled(), held.validation

    def likelihood(kind: Any) -> float:
        model = fit_alone(kind, rows.inputs(0, rows.starts[-1]), rows.labels, seed)
        return float(judge.labels.log_likelihood(probabilities(model, judge.x, judge.labels)).sum())

    best = max(families(rows, MINUTES, CLASSIC), key=likelihood)
    model = fit_alone(best, federation.inputs(0, federation.starts[-1]), federation.labels, seed)
    evaluator, predictor = make_evaluator(config, data), Mixture(model, 0.0).by_itself(type(federation.labels))
    return {k: evaluator.site(k, predictor) for k in range(evaluator.sites)}


def lines(out: Path) -> list[dict[str, Any]]:
    """Return the runs that are done."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def table(out: Path) -> str:
    """Return the means over the seeds in Markdown, and by how much `auto` is above the best that keeps data at home."""
    done = lines(out)
    heads = ["federation", "seeds", "auto", "best single method", *ALONE, POOLED, "auto - best at home (error)"]
    rows = [f"| {' | '.join(heads)} |", "| " + " | ".join(["---"] * len(heads)) + " |"]
    gains = []
    for name in dict.fromkeys(r["federation"] for r in done):
        figures = {
            (r["what"], r["seed"]): r["value"] for r in done if r["federation"] == name and r["value"] is not None
        }
        mean = {w: statistics.fmean(v for (x, _), v in figures.items() if x == w) for w, _ in figures}
        single = {w: v for w, v in mean.items() if w in FEDERATIONS[name][1]}
        best = max(single, key=lambda w: single[w], default="")
        home = max((w for w in mean if w not in ("auto", POOLED)), key=lambda w: mean[w], default="")
        pairs = [v - figures[home, s] for (w, s), v in figures.items() if w == "auto" and (home, s) in figures]
        if ("auto" in mean) and ("alone, classic" in mean):
            gains.append(mean["auto"] - mean["alone, classic"])
        error = statistics.stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else float("nan")
        cells = [f"{mean[w]:.1f}" if w in mean else "" for w in ("auto", *ALONE, POOLED)]
        cells.insert(1, f"{single[best]:.1f} ({best})" if best else "")
        cells.append(f"{statistics.fmean(pairs):+.1f} ({error:.1f}), {home}" if pairs else "")
        rows.append(f"| {name} | {len({r['seed'] for r in done if r['federation'] == name})} | {' | '.join(cells)} |")
    if gains:
        rows.append(f"\nauto over scikit-learn alone, mean over federations: {statistics.fmean(gains):+.1f} points.")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
