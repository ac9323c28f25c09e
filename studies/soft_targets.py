"""Accuracy after training on noisy labels: `python -m studies.soft_targets [--jobs 14]`.

Digits of scikit-learn whose labels are flipped, trained as given, after posterior repair (without clean rows), on the
posteriors themselves (`posterior-ce`), and on the true labels. Every run is one line of the file of results, and runs
in the file are not repeated.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import torch

from imperfed.algorithms import reference
from imperfed.algorithms.fedavg import FedAvg
from imperfed.core.federation import Federation
from imperfed.core.labels import Exact, Labels, Probabilities
from imperfed.data.federate import federate
from imperfed.data.labelling import LabelConfig
from imperfed.data.sources import load
from imperfed.data.split import SplitConfig
from imperfed.engine.conversation import repair_labels
from imperfed.engine.engine import Engine
from imperfed.engine.local_training import Local
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.evaluator import Evaluator
from imperfed.experiments.config import RunConfig
from imperfed.experiments.device import Hardware
from imperfed.models import ModelSpec, build
from imperfed.repairs.posterior import PosteriorRepair
from studies.lines import Record, numbers, read_lines, rounded, run_cells
from studies.noisy_data import FLIPS, flipped

RESULTS = Path(__file__).parent / "results" / "soft_targets.jsonl"
WAYS = ("as given", "repaired", "posterior-ce", "true labels")
MODEL, ROUNDS, LOCAL = ModelSpec("mlp", hidden=64), 30, Local(steps=20, lr=0.05)


@dataclass(frozen=True)
class TrainedCell:
    """One federation with noise, trained in all ways."""

    noise: str
    rate: float
    sites: int
    seed: int


def cells(seeds: Sequence[int]) -> Iterator[TrainedCell]:
    """Yield all federations."""
    for noise, rate, sites, seed in product(FLIPS, (0.2, 0.4), (5, 20), seeds):
        yield TrainedCell(noise, rate, sites, seed)


def carry_out(cell: TrainedCell) -> Record:
    """Return the accuracy of every way to train."""
    torch.set_num_threads(1)
    data = federate(load("digits"), SplitConfig(cell.sites), LabelConfig("exact"), cell.seed)
    given = flipped(data.federation, cell.noise, cell.rate, cell.seed)
    kinds: dict[str, type[Labels]] = {"repaired": Exact, "posterior-ce": Probabilities}
    federations = {way: repair_labels(PosteriorRepair(), given, kind)[0] for way, kind in kinds.items()}
    federations |= {"as given": given, "true labels": data.federation}
    evaluator = Evaluator(data.oracle)
    return rounded(asdict(cell) | {way: accuracy(federations[way], evaluator, cell.seed) for way in WAYS})


def accuracy(federation: Federation, evaluator: Evaluator, seed: int) -> float:
    """Train with FedAvg, and return the mean test accuracy over the sites, each on its own rows."""
    hardware = Hardware.of(RunConfig(device="cpu"))
    hardware.prepare()
    network = build(MODEL, tuple(federation.x.shape[1:]), len(federation.classes), seed)
    schedule = Rounds(rounds=ROUNDS, workers=1, evaluate_every=ROUNDS)
    objective = reference(type(federation.labels))
    parts = (FedAvg(), objective, network, federation, evaluator, LOCAL, schedule, seed, None)
    with closing(Engine(*parts, hardware.make_backend, hardware.device)) as engine:
        engine.run(lambda report: None, lambda: False, None)
        personal, _ = engine.evaluate()
    return statistics.fmean(scores["accuracy"][0] for scores in personal.values())


def table(records: Sequence[Record]) -> Iterator[str]:
    """Yield the table: accuracy in per cent, mean over the seeds with the lowest in brackets."""
    yield "| noise | rate | sites | seeds | " + " | ".join(WAYS) + " |"
    yield "| --- " * (4 + len(WAYS)) + "|"
    for cell in cells([0]):
        known = [record for record in records if replace(cell, seed=record["seed"]) == cell_of(record)]
        if known:
            columns = [[100 * record[way] for record in known] for way in WAYS]
            shown = " | ".join(f"{statistics.fmean(column):.1f} ({min(column):.1f})" for column in columns)
            yield f"| {cell.noise} | {100 * cell.rate:.0f} % | {cell.sites} | {len(known)} | {shown} |"


def cell_of(record: Record) -> TrainedCell:
    """Return the federation of a result."""
    return TrainedCell(record["noise"], record["rate"], record["sites"], record["seed"])


def main(words: Sequence[str] | None = None) -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.soft_targets", description=__doc__)
    parser.add_argument("--seeds", default="0-2", type=numbers)
    parser.add_argument("--jobs", type=int, default=1, help="federations at a time")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(words)
    done = {cell_of(record) for record in read_lines(options.out)}
    todo = [cell for cell in cells(options.seeds) if cell not in done]
    if todo:
        run_cells(todo, carry_out, options.jobs, options.out)
    print(*table(read_lines(options.out)), sep="\n")


if __name__ == "__main__":
    main()
