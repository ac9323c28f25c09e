"""FB-NLL's table of accuracy: `python -m studies.fb_nll_accuracy --data mnist,cifar10-features`.

Every method is trained on the labels as given and as repaired. All methods of one split (a dataset, its tasks, a kind
of noise, a seed) are one piece of work; its results are appended to a file of JSON lines when it ends, and a piece in
the file is not repeated. CIFAR-10 needs the extra `vision`; with its images as inputs instead of the features of a
network, it also needs a GPU or much time.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import torch

from imperfed.algorithms import reference
from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.ifca import IFCA
from imperfed.core.algorithm import Algorithm
from imperfed.core.federation import Federation
from imperfed.core.labels import Exact
from imperfed.data.corruption.noise import noises
from imperfed.data.dataset import Dataset
from imperfed.data.federate import federate
from imperfed.data.labelling import LabelConfig
from imperfed.data.partitions.tasks import TasksPartition
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
from imperfed.repairs.fb_nll import FBNLL
from imperfed.repairs.features import features
from studies.fb_nll import CLEAN, IMPURITY, NETWORK, NOISES, SEEDS, SITES, TASKS, first, spread

ROWS = 8000
CLEAN_LABELS = "FB-NLL(-) without noise"
LOCAL = Local(steps=20, lr=0.05, weight_decay=5e-4)


@dataclass(frozen=True)
class Recipe:
    """The data, model and rounds of training, and the features by which sites are grouped and labels corrected."""

    data: str
    model: ModelSpec
    rounds: int
    features: str
    class_features: str
    inputs: str = "raw"
    """The features that replace the images."""


MLP = ModelSpec("mlp", hidden=64)
RECIPES = {
    "mnist": Recipe("mnist", MLP, 50, "hog", "hog"),
    "cifar10-features": Recipe("cifar10", MLP, 50, "raw", "raw", NETWORK),
    "cifar10": Recipe("cifar10", ModelSpec("lenet5"), 100, "hog", NETWORK),
}

Method = tuple[Algorithm, FBNLL | None]


def methods(data: str, tasks: int) -> dict[str, Method]:
    """Return the methods compared: an algorithm, and the repair before it."""
    recipe = RECIPES[data]
    whole = FBNLL(groups=tasks, features=recipe.features, class_features=recipe.class_features)
    return {
        "one model": (FedAvg(), None),
        "one model, corrected": (FedAvg(), replace(whole, groups=1)),
        "IFCA-PFL": (IFCA(clusters=tasks), None),
        "FB-NLL(-)": (FedAvg(), replace(whole, correct=False)),
        "FB-NLL": (FedAvg(), whole),
    }


@dataclass(frozen=True)
class Piece:
    """One split of the data of a recipe."""

    data: str
    tasks: int
    noise: str
    seed: int


@cache
def rows(data: str) -> Dataset:
    """Return the data of a recipe, limited to the rows that fit into the time."""
    recipe = RECIPES[data]
    dataset = first(load(recipe.data), ROWS)
    if recipe.inputs == "raw":
        return dataset
    # Shaped as images of one pixel, which are not standardised.
    return replace(dataset, x=features(recipe.inputs, dataset.x).float()[..., None, None])


def work(piece: Piece, device: str) -> dict[str, float]:
    """Return the accuracy of every method in per cent; without noise only that of the reference."""
    torch.set_num_threads(1)
    dataset = rows(piece.data)
    split = SplitConfig(SITES, TasksPartition(piece.tasks, impurity=IMPURITY), trusted=CLEAN / len(dataset))
    data = federate(dataset, split, LabelConfig("exact", noise=noises()[piece.noise]()), piece.seed)
    evaluator, accuracies = Evaluator(data.oracle), {}
    for name, (algorithm, repair) in methods(piece.data, piece.tasks).items():
        if piece.noise != "none" or name == "FB-NLL(-)":
            federation = repair_labels(repair, data.federation)[0] if repair else data.federation
            accuracies[name] = trained(piece, algorithm, federation, evaluator, device)
    return accuracies if piece.noise != "none" else {CLEAN_LABELS: accuracies["FB-NLL(-)"]}


def trained(piece: Piece, algorithm: Algorithm, federation: Federation, evaluator: Evaluator, device: str) -> float:
    """Train, and return the mean test accuracy over the sites, each on its own rows, in per cent."""
    recipe, hardware = RECIPES[piece.data], Hardware.of(RunConfig(device=device))
    hardware.prepare()
    network = build(recipe.model, tuple(federation.x.shape[1:]), len(federation.classes), piece.seed)
    schedule = Rounds(rounds=recipe.rounds, workers=1, evaluate_every=recipe.rounds)
    parts = (algorithm, reference(Exact), network, federation, evaluator, LOCAL, schedule, piece.seed, None)
    with closing(Engine(*parts, hardware.make_backend, hardware.device)) as engine:
        engine.run(lambda report: None, lambda: False, None)
        personal, _ = engine.evaluate()
    return 100 * statistics.fmean(scores["accuracy"][0] for scores in personal.values())


def pieces(data: Iterable[str]) -> list[Piece]:
    """Return all splits of these datasets; the seeds of one table row follow each other."""
    return [Piece(*one) for one in product(data, TASKS, ("none", *NOISES), SEEDS)]


def study(options: argparse.Namespace) -> None:
    """Run the pieces that are not in the file yet."""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = known(options.out)
    todo = [piece for piece in pieces(options.data) if piece not in done]
    for data in sorted({piece.data for piece in todo}):
        features(RECIPES[data].class_features, rows(data).x)  # so that all processes find them on disk
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(work, piece, options.device): piece for piece in todo}
        for number, future in enumerate(as_completed(futures), 1):
            piece, accuracies = futures[future], {name: round(value, 3) for name, value in future.result().items()}
            with options.out.open("a") as file:
                file.write(json.dumps({"piece": asdict(piece), "found": accuracies}) + "\n")
            print(f"{number} of {len(todo)}: {piece}: {accuracies}", flush=True)


def known(path: Path) -> dict[Piece, dict[str, float]]:
    """Return the results in a file."""
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {Piece(**record["piece"]): record["found"] for record in records}


def table(results: dict[Piece, dict[str, float]], data: Iterable[str]) -> Iterator[str]:
    """Yield the table in per cent: mean over sites and seeds, the worst seed in brackets; last column without noise."""
    columns = [*methods("mnist", 2), CLEAN_LABELS]
    yield "| data | tasks | noise | " + " | ".join(columns) + " |"
    yield "| --- " * (len(columns) + 3) + "|"
    for name, tasks, noise in product(data, TASKS, NOISES):
        kinds = [[results.get(Piece(name, tasks, kind, seed), {}) for kind in (noise, "none")] for seed in SEEDS]
        seeds = [noisy | clean for noisy, clean in kinds]
        whole = [all(column in one for one in seeds) for column in columns]
        cells = [spread([one[c] for one in seeds], 1) if w else "-" for c, w in zip(columns, whole, strict=True)]
        yield f"| {name} | {tasks} | {noise} | " + " | ".join(cells) + " |"


def main(words: Sequence[str] | None = None) -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=list(RECIPES), type=lambda text: text.split(","))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/fb_nll_accuracy.jsonl"))
    options = parser.parse_args(words)
    if unknown := [name for name in options.data if name not in RECIPES]:
        parser.error(f"--data {','.join(unknown)}: the choices are {', '.join(RECIPES)}")
    study(options)
    print("\n".join(table(known(options.out), options.data)))


if __name__ == "__main__":
    main()
