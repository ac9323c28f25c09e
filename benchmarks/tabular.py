"""Networks for tables beside trees, on the same rows: `python -m benchmarks.tabular [TABLE ...]`.

Every table is divided over sites, evenly mixed and with skewed classes, with several data seeds. A fifth of each site's
rows are test rows, which no choice sees; a fifth of the others are held out. Every contender trains on the rest and has
a small grid, from which the rows held out choose: networks also their best round, trees of scikit-learn their settings.
Trees are fitted at each site alone, and to the rows of all sites together, which no federation may do. Prints a table
in Markdown after every seed, and appends a line per run to `--out` (a .jsonl file), from which it goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

from imperfed.alone import AloneModel, alone_models, fit
from imperfed.core.federation import Federation
from imperfed.core.labels.validity import mean
from imperfed.core.threads import one_thread
from imperfed.data.dataset import Dataset
from imperfed.data.federate import FederatedData, federate
from imperfed.data.held_out import hold_out
from imperfed.data.sources import load
from imperfed.experiments.auto.combinations import PASSES, RECIPES
from imperfed.experiments.experiment import Experiment
from imperfed.experiments.resolving import resolve

Words = dict[str, Any]
BUNDLED = ("iris", "wine", "breast_cancer", "digits")
"""Tables that come with scikit-learn."""
TABLES: dict[str, Words] = {
    **{name: {"kind": "exact", "sites": 4} for name in BUNDLED[:3]},
    **{name: {"kind": "exact", "sites": 6} for name in ("digits", "compas", "student", "wisdm")},
    **{name: {"sites": 6} for name in ("lost", "birdsong")},
}
PARTITIONS: dict[str, Words] = {"iid": {"partition": "iid"}, "skewed": {"partition": "dirichlet", "beta": 0.3}}
METHODS = ("fedavg", "fedper")
MODELS = ("logistic", "mlp", "mlp-ple")
GRID = [recipe for recipe in RECIPES if recipe.get("local.optimizer") == "adamw"]
TRAINING: Words = {"rounds.rounds": 30, "rounds.patience": 6, "rounds.workers": 1, "local.max_steps": 60}
TREES: dict[str, tuple[Words, ...]] = {
    "forest": ({"leaf": 1}, {"leaf": 5}),
    "boosting": ({"leaves": 31}, {"leaves": 7}),
}
HELD_OUT = 0.2
RESULTS = Path(__file__).parent / "results" / "tabular.jsonl"


def main() -> None:
    """Run the tables named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", help=f"of: {', '.join(TABLES)}")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--figure", choices=("test", "valid"), default="test", help="which one to print")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no run after this many")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    began, wanted = time.monotonic(), options.models.split(",")
    for seed in map(int, options.seeds.split(",")):
        for name in options.tables or TABLES:
            for partition in PARTITIONS:
                for what, measure in contenders(name, partition, seed, wanted):
                    if (name, partition, seed, what) in known(options.out):
                        continue
                    if time.monotonic() - began > 60 * options.minutes:
                        return
                    record = {"table": name, "partition": partition, "seed": seed, "what": what, **measure()}
                    with options.out.open("a") as file:
                        file.write(json.dumps(record) + "\n")
        print(table(options.out, options.figure), comparisons(options.out), sep="\n\n", flush=True)


def known(out: Path) -> set[tuple[str, str, int, str]]:
    """Return the runs that are done."""
    return {(r["table"], r["partition"], r["seed"], r["what"]) for r in lines(out)}


def lines(out: Path) -> list[dict[str, Any]]:
    """Return what is known of the runs that are done."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


# -- the contenders ----------------------------------------------------------------------------------------------------


def contenders(
    name: str, partition: str, seed: int, wanted: list[str]
) -> Iterator[tuple[str, Callable[[], Mapping[str, float]]]]:
    """Yield every contender's name, and what measures it."""
    words = TABLES[name] | PARTITIONS[partition] | {"data_seed": seed, "seed": seed, "split.public": 0.0}
    for method in METHODS:
        for model in wanted:
            if (method, model) != ("fedper", "logistic"):  # which is all head, and shares nothing
                yield f"{method} {model}", lambda method=method, model=model: network(name, words, method, model)
    for family in TREES:
        for pooled in (False, True):
            where = "pooled" if pooled else "alone"
            yield f"{family} {where}", lambda family=family, pooled=pooled: trees(name, words, family, pooled)


def network(name: str, words: Words, method: str, model: str) -> Mapping[str, float]:
    """Return the score on the rows held out and the accuracy on test rows of a federated network, in per cent."""
    results, began = [], time.perf_counter()
    for recipe in GRID:
        settings = words | {"method": method, "model.name": model, "data": "digits"} | PASSES | recipe | TRAINING
        config = resolve(words=settings)
        held = hold_out(federated(name, words), HELD_OUT, config.run.data_seed)
        with closing(Experiment(config, held)) as experiment:
            engine = experiment.engine
            engine.run(lambda report: None, lambda: False, None)
            engine.return_to_best()
            best, population = engine.state.best, engine.population
            assert best is not None
            nets = (population.load(k, *population.shared_model(k)) for k in range(len(population.sizes)))
            results.append((best.score, accuracy(experiment, nets)))
    valid, test = max(results, key=itemgetter(0))  # the first of equals: test rows have no say
    return {"valid": 100 * valid, "test": 100 * test, "seconds": (time.perf_counter() - began) / len(GRID)}


def accuracy(experiment: Experiment, models: Any) -> float:
    """Return the mean over the sites of the accuracy on their own test rows."""
    return statistics.fmean(experiment.evaluator.site(k, model)["accuracy"][0] for k, model in enumerate(models))


def trees(name: str, words: Words, family: str, pooled: bool) -> Mapping[str, float]:
    """Return the same figures of trees, fitted at each site alone or to the rows of all sites; one setting for all."""
    config = resolve(words=words | {"method": "fedavg", "data": "digits"})
    held = hold_out(federated(name, words), HELD_OUT, config.run.data_seed)
    results, began = [], time.perf_counter()
    with one_thread(), closing(Experiment(config, held)) as experiment:
        for settings in TREES[family]:
            kind = alone_models()[family](**settings)
            models = fitted(kind, held.federation.pooled() if pooled else held.federation)
            models *= len(held.federation.sites) if pooled else 1
            results.append((agreement(models, held.federation), accuracy(experiment, models)))
    valid, test = max(results, key=itemgetter(0))  # the first of equals: test rows have no say
    return {"valid": 100 * valid, "test": 100 * test, "seconds": (time.perf_counter() - began) / len(TREES[family])}


def fitted(kind: AloneModel, federation: Federation) -> list[Any]:
    """Return a model for each site, as a function from inputs to logits."""
    found = []
    for a, b in zip(federation.starts, federation.starts[1:], strict=False):
        model = fit(kind, federation.inputs(a, b), federation.labels.between(a, b), 0)
        found.append(lambda x, model=model: federation.labels.logits(model.probabilities(x)))
    return found


def agreement(models: list[Any], federation: Federation) -> float:
    """Return the score by which networks are chosen, of models on the rows held out."""
    held = federation.validation
    assert held is not None
    rows = [held.at(k) for k in range(len(models))]
    return mean([labels.validity(model(x)) for model, (x, labels) in zip(models, rows, strict=True)]).score


def federated(name: str, words: Words) -> FederatedData:
    """Return a table, divided over the sites."""
    config = resolve(words=words | {"method": "fedavg", "data": "digits"})
    return federate(read(name), config.split, config.labels, config.run.data_seed)


def read(name: str) -> Dataset:
    """Return a table by its name."""
    if name not in BUNDLED:
        return load(name)
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    classes = tuple(map(str, range(int(y.max()) + 1)))
    return Dataset(name, torch.tensor(x).float(), torch.tensor(y).long(), None, classes)


# -- the table ---------------------------------------------------------------------------------------------------------


def table(out: Path, figure: str = "test") -> str:
    """Return means over the seeds and their standard errors, one row per federation; then the means of all rows."""
    done = lines(out)
    names = list(dict.fromkeys(r["what"] for r in done))
    rows = ["| table | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    columns: dict[str, list[float]] = {name: [] for name in names}
    places = list(dict.fromkeys((r["table"], r["partition"]) for r in done))
    for place in places:
        own = [r for r in done if (r["table"], r["partition"]) == place]
        values = {name: [r[figure] for r in own if r["what"] == name] for name in names}
        rows.append(f"| {', '.join(place)} | " + " | ".join(map(spelled, values.values())) + " |")
        for name, some in values.items():
            columns[name] += [statistics.fmean(some)] if some else []
    whole = (f"{statistics.fmean(c):.1f}" if len(c) == len(places) else "" for c in columns.values())
    return "\n".join([*rows, "| mean | " + " | ".join(whole) + " |"])


def comparisons(out: Path) -> str:
    """Return by how much contenders with bins differ from others, mean over the rows of the table."""
    runs: dict[tuple[str, str, int], dict[str, dict[str, Any]]] = {}
    for r in lines(out):
        runs.setdefault((r["table"], r["partition"], r["seed"]), {})[r["what"]] = r
    others = [f"{family} {where}" for where in ("alone", "pooled") for family in TREES]
    pairs = [*((f"{m} mlp-ple", f"{m} mlp") for m in METHODS), *(("fedper mlp-ple", other) for other in others)]
    told = [
        f"{ours} - {theirs}, {figure}: {difference([(k, r[ours][figure] - r[theirs][figure]) for k, r in done])}"
        for ours, theirs in pairs
        if (done := [(k, r) for k, r in runs.items() if ours in r and theirs in r])
        for figure in ("valid", "test")
    ]
    networks = {k: [v for name, v in r.items() if name.split()[0] in METHODS] for k, r in runs.items()}
    chosen = [
        (k, *(max(some, key=itemgetter("valid"), default=None) for some in (every, without_bins(every))))
        for k, every in networks.items()
    ]
    gains = [(k, best["test"] - other["test"]) for k, best, other in chosen if best and other]
    return "\n".join([*told, f"chosen among all networks - among those without bins, test: {difference(gains)}"])


def without_bins(some: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs of networks without bins."""
    return [r for r in some if not r["what"].endswith("mlp-ple")]


def difference(values: list[tuple[tuple[str, str, int], float]]) -> str:
    """Return a mean difference over the rows of the table, its standard error, and in how many rows it is above 0."""
    rows: dict[tuple[str, str], list[float]] = {}
    for (name, partition, _), value in values:
        rows.setdefault((name, partition), []).append(value)
    means = [statistics.fmean(some) for some in rows.values()]
    error = statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else math.nan
    above, level = sum(m > 0 for m in means), sum(m == 0 for m in means)
    return f"{statistics.fmean(means):+.2f} ({error:.2f}), above in {above} and level in {level} of {len(means)}"


def spelled(values: list[float]) -> str:
    """Return a mean with its standard error, if there are several values."""
    if len(values) < 2:
        return f"{values[0]:.1f}" if values else ""
    return f"{statistics.fmean(values):.1f} ± {statistics.stdev(values) / math.sqrt(len(values)):.1f}"


if __name__ == "__main__":
    main()
