"""What privacy costs on digits: accuracy against epsilon, over seeds.

python -m benchmarks.privacy [--seeds 5]

A logistic model, equally many rows at every site, drawn at random. Every line is the mean and the standard deviation
over seeds of the accuracy on all sites' test rows; epsilon is that of one site, at delta 1e-5.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from imperfed.experiments.experiment import Experiment
from imperfed.experiments.resolving import resolve

SETTINGS: dict[str, Any] = {
    "method": "fedavg",
    "data": "digits",
    "labels.kind": "exact",
    "split.partition": "iid",
    "split.public": 0,
    "model": "logistic",
    "local.epochs": 5,
    "local.batch": 8,
    "local.lr": 0.1,
    "rounds.rounds": 10,
    "rounds.evaluate_every": 10,
    "rounds.workers": 1,
}
SITES = (10, 100)
NOISES = {"site": (0.25, 1.0, 4.0), "sum": (1.0, 4.0, 8.0)}


def lines() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a name and the settings of every line of the table."""
    for sites in SITES:
        yield f"{sites} sites, no privacy", {"split.sites": sites}
        for name, noises in NOISES.items():
            for noise in noises:
                private = {"privacy": name, "privacy.clip": 0.5, "privacy.noise": noise}
                yield f"{sites} sites, privacy={name}, noise {noise:g}", {"split.sites": sites, **private}


def measured(settings: dict[str, Any], seed: int) -> tuple[float, float]:
    """Return the accuracy on the test rows of all sites together, in per cent, and epsilon."""
    config = resolve(words=SETTINGS | settings | {"seed": seed, "data_seed": seed})
    with closing(Experiment(config)) as experiment:
        engine = experiment.engine
        engine.run(lambda report: None, lambda: False, None)
        scores = [site["accuracy"] for site in engine.evaluate()[0].values()]
        right, rows = sum(value * n for value, n in scores), sum(n for _, n in scores)
        epsilon = max(engine.budget.epsilons(engine.state.round - 1).values()) if engine.budget else float("inf")
    return 100 * right / rows, epsilon


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    for name, settings in lines():
        found = [measured(settings, seed) for seed in seeds]
        values = [value for value, _ in found]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"{name}: epsilon {found[0][1]:.3g}, accuracy {statistics.fmean(values):.1f} +- {spread:.1f}", flush=True)


if __name__ == "__main__":
    main()
