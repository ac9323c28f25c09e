"""FedALC and its rivals on multi-label text: `python -m benchmarks.positives --data bibtex,enron,rcv1 --device cuda`.

Every line of the table sweeps its settings with the first seed; the setting and the round to stop at are chosen by P@1
on validation rows, then the other seeds are run. The test rows are used once for each of `--rounds`, at the chosen
round. Every run is appended to a file of JSON lines when it ends, and runs in the file are not repeated;
`studies.pages` writes the tables of that file into the page of results.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import positives_table as tables
from imperfed.algorithms import catalogue
from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import DivergedError
from imperfed.data.federate import FederatedData, federate
from imperfed.data.labelling import LabelConfig
from imperfed.data.partitions.label import LabelPartition
from imperfed.data.sources import load
from imperfed.data.sparse import width
from imperfed.data.split import SplitConfig
from imperfed.engine.backends.sequential import SequentialBackend
from imperfed.engine.engine import Engine
from imperfed.engine.local_training import Local
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.evaluator import Evaluator
from imperfed.evaluation.model_figures import precision_at
from imperfed.models import ModelSpec, build

SPLIT = SplitConfig(partition=LabelPartition(), test=0.34, validation=0.1, public=0.0)
STEPS = {"one_pass": True, "lr_theta": 1.0}
COUNTED = {"hashed": "input"}  # the counts are those of digested embeddings, without a pass through the model
NEAR = STEPS | {"lr_w": 0.01, "lr_server": 0.01, "neighbours": 5}
ALL = STEPS | {"lr_w": 0.01, "lr_server": 0.001}
LAMBDAS = (1.0, 3.0, 10.0, 30.0, 90.0)
ALC = NEAR | COUNTED

GRID: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "FedALC": ("fedalc", [ALC | {"lam": lam} for lam in LAMBDAS]),
    "FedALC-fixed": ("fedalc-fixed", [STEPS | COUNTED | {"lr_fixed": rate} for rate in (0.1, 1.0, 10.0)]),
    "FedAwS, K = 5": ("fedaws", [NEAR | {"lam": lam} for lam in LAMBDAS]),
    "FedAwS, all pairs": ("fedaws", [ALL | {"lam": lam} for lam in LAMBDAS]),
    "FedAvg-fixed": ("fedavg-fixed", [STEPS]),
    "FedAvg": ("fedaws", [STEPS | {"lam": 0.0, "lr_w": rate} for rate in (0.01, 0.1)]),
    "FedAvg as printed": (
        "fedaws",
        [{"one_pass": True, "lam": 0.0, "lr_theta": 0.1, "lr_w": 0.1, "by_size": False}],
    ),
}
"""Every line of the table: its method, and the settings to choose from."""

ABLATIONS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "FedALC, weights counts": ("fedalc", [ALC | {"lam": lam / 100, "weights": "counts"} for lam in LAMBDAS]),
    "FedALC, weights sigma": ("fedalc", [ALC | {"lam": 100 * lam, "weights": "sigma"} for lam in LAMBDAS]),
    "FedALC, plain mean of theta": ("fedalc", [ALC | {"lam": lam, "by_size": False} for lam in LAMBDAS]),
    "FedALC, margin of the next neighbour": ("fedalc", [ALC | {"lam": lam, "nu": 0.0} for lam in LAMBDAS]),
    "FedALC, Eq. 7": ("fedalc", [ALC | {"lam": lam, "mined": True} for lam in LAMBDAS]),
}
"""Further lines, run only if `--only` names them."""

GUESS = "most frequent labels"
"""The line without any method."""


@dataclass(frozen=True)
class Task:
    """One run. `stops`: the numbers of rounds after which all figures are recorded, at the best round so far."""

    data: str
    line: str
    settings: dict[str, Any]
    seed: int
    stops: tuple[int, ...]
    every: int
    widths: tuple[int, ...]

    @property
    def key(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


@lru_cache(maxsize=9)
def scene(data: str, seed: int) -> FederatedData:
    return federate(load(data), SPLIT, LabelConfig(), seed)


class Run:
    """The rounds of a method on a device."""

    def __init__(self, method: Algorithm, data: FederatedData, widths: tuple[int, ...], seed: int, device: str) -> None:
        fed, evaluator = data.federation, Evaluator(data.oracle)
        spec = ModelSpec("text", features=width(fed.x), widths=widths)
        network = build(spec, tuple(fed.x.shape[1:]), len(fed.classes), seed)
        assert method.objective is not None
        parts = (method, method.objective, network, fed, evaluator, Local(steps=1), Rounds(workers=1), seed)
        self.engine = Engine(
            *parts,
            make_backend=lambda population, on_duty, workers: SequentialBackend(population),
            device=torch.device(device),
        )
        self.answers = data.oracle.validation_y.to(device)

    @property
    def w(self) -> Tensor:
        return self.engine.state.server["w"]

    @torch.no_grad()
    def validation(self) -> float:
        """Return the current P@1 on validation rows, computed on the network's device."""
        population = self.engine.population
        net = population.load(0, self.w, self.engine.state.server["buffers"])
        return precision_at(1)(net(population.evaluator.oracle.validation_x), self.answers)

    def figures(self, w: Tensor) -> dict[str, float]:
        """Return all figures at these weights."""
        population = self.engine.population
        scores = population.evaluator.common(population.load(0, w, self.engine.state.server["buffers"]))
        return {name: round(value, 5) for name, (value, _) in scores.items()}

    def course(self, stops: tuple[int, ...], every: int) -> dict[str, Any]:
        """Do all rounds; a run that diverges ends there, with the figures of its best round."""
        course: list[tuple[int, float]] = []
        figures: dict[str, Any] = {}
        best, chosen, diverged = -1.0, self.w.clone(), 0
        for number in range(1, stops[-1] + 1):
            try:
                if not diverged:
                    self.engine.round(number - 1)
            except DivergedError:
                diverged = number
            if not diverged and (number % every == 0 or number in stops):
                course.append((number, round(self.validation(), 5)))
                if course[-1][1] > best:
                    best, chosen = course[-1][1], self.w.clone()
            if number in stops:
                figures[str(number)] = self.figures(chosen)
        return {"validation": best, "figures": figures, "course": course, "diverged": diverged}


def work(task: Task, device: str) -> dict[str, Any]:
    """Do a run and return its record."""
    torch.set_num_threads(1)
    began, made = time.perf_counter(), scene(task.data, task.seed)
    record = asdict(task) | {"task": task.key, "device": device}
    if task.line == GUESS:
        return record | {"figures": {str(stop): made.facts["most_frequent"] for stop in task.stops}}
    method, _ = (GRID | ABLATIONS)[task.line]
    run = Run(catalogue()[method](**task.settings), made, task.widths, task.seed, device)
    opened = time.perf_counter()
    found = run.course(task.stops, task.every)
    told = {"opening_s": round(opened - began, 2), "rounds_s": round(time.perf_counter() - opened, 2)}
    return record | told | found


def wanted(given: argparse.Namespace, done: dict[str, dict[str, Any]]) -> Iterator[Task]:
    """Return all runs known so far: a line's other seeds follow once its first seed has tried every setting."""
    how = {"stops": given.rounds, "every": given.every, "widths": given.widths}
    for data in given.data:
        yield from (Task(data, GUESS, {}, seed, **how) for seed in given.seeds)
        for line in given.only:
            _, settings = (GRID | ABLATIONS)[line]
            settings = [s for s in settings if fits(s, given.pick)] or settings
            first = [Task(data, line, s, given.seeds[0], **how) for s in settings]
            yield from first
            if all(task.key in done for task in first):
                best = tables.chosen([done[task.key] for task in first])
                yield from (Task(data, line, best["settings"], seed, **how) for seed in given.seeds[1:])


def all_of(tasks: list[Task], device: str, jobs: int) -> Iterator[dict[str, Any]]:
    """Yield the records of these runs as they finish."""
    if jobs == 1:
        yield from (work(task, device) for task in tasks)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(work, task, device) for task in tasks]):
            yield future.result()


def study(given: argparse.Namespace) -> None:
    """Run what is missing, in waves: the sweeps of all lines, then the other seeds."""
    done = {record["task"]: record for record in tables.read(given.out)}
    while todo := [task for task in wanted(given, done) if task.key not in done]:
        for number, record in enumerate(all_of(todo, given.device, given.jobs), 1):
            done[record["task"]] = record
            tables.append(given.out, record)
            print(f"{number} of {len(todo)}: {tables.told(record)}", flush=True)


def fits(settings: dict[str, Any], pick: dict[str, float]) -> bool:
    """Return whether the settings have the selected values, as far as they exist."""
    return all(settings.get(name, value) == value for name, value in pick.items())


def values(words: str) -> dict[str, float]:
    return {name: float(value) for name, _, value in (word.partition("=") for word in words.split(","))}


def whole(words: str) -> tuple[int, ...]:
    return tuple(int(word) for word in words.split(","))


def options(words: Iterable[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="bibtex", type=lambda words: words.split(","))
    parser.add_argument("--rounds", type=whole, default="300,900", help="all figures after each of these")
    parser.add_argument("--every", type=int, default=25, help="rounds between two looks at the validation rows")
    parser.add_argument("--seeds", type=whole, default="0,1,2")
    parser.add_argument("--widths", type=whole, default="512,1024,1024,512")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", default=list(GRID), type=lambda words: words.split(";"), help="lines, with ; between")
    parser.add_argument("--pick", default={}, type=values, help="settings not to sweep, as lam=10,lr_fixed=1")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/positives.jsonl"))
    return parser.parse_args(words)


def main() -> None:
    given = options()
    study(given)
    for data in given.data:
        print(tables.table(list(tables.read(given.out)), data))


if __name__ == "__main__":
    main()
