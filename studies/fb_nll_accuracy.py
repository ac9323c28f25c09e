"""FB-NLL's table of accuracy: `python -m studies.fb_nll_accuracy --data mnist,cifar10-features`.

Every method is trained on the labels as given and as the repair leaves them. All methods of one split (a dataset, its
tasks, a kind of noise, a seed) are one piece of work; what a piece found is appended to a file of JSON lines when it
ends, and a piece that lies there is not done again. CIFAR-10 needs the extra `vision`; its pictures themselves, not the
features of a network, also need a GPU or patience.
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
    """What is trained on what, and the features by which sites are grouped and labels corrected."""

    data: str
    model: ModelSpec
    rounds: int
    features: str
    class_features: str
    inputs: str = "raw"
    """The features that take the place of the pictures."""


MLP = ModelSpec("mlp", hidden=64)
RECIPES = {
    "mnist": Recipe("mnist", MLP, 50, "hog", "hog"),
    "cifar10-features": Recipe("cifar10", MLP, 50, "raw", "raw", NETWORK),
    "cifar10": Recipe("cifar10", ModelSpec("lenet5"), 100, "hog", NETWORK),
}

Method = tuple[Algorithm, FBNLL | None]


def methods(data: str, tasks: int) -> dict[str, Method]:
    """What is compared: an algorithm, and the repair before it."""
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
    """One split of what a recipe is for."""

    data: str
    tasks: int
    noise: str
    seed: int


@cache
def rows(data: str) -> Dataset:
    """What a recipe is for, as many rows as there is time for."""
    recipe = RECIPES[data]
    dataset = first(load(recipe.data), ROWS)
    if recipe.inputs == "raw":
        return dataset
    # Shaped as pictures of one pixel, which are not standardised.
    return replace(dataset, x=features(recipe.inputs, dataset.x).float()[..., None, None])


def work(piece: Piece, device: str) -> dict[str, float]:
    """Every method's accuracy in per cent; without noise only the reference's."""
    torch.set_num_threads(1)
    dataset = rows(piece.data)
    split = SplitConfig(SITES, TasksPartition(piece.tasks, impurity=IMPURITY), trusted=CLEAN / len(dataset))
    data = federate(dataset, split, LabelConfig("exact", noise=noises()[piece.noise]()), piece.seed)
    evaluator, found = Evaluator(data.oracle), {}
    for name, (algorithm, repair) in methods(piece.data, piece.tasks).items():
        if piece.noise != "none" or name == "FB-NLL(-)":
            federation = repair_labels(repair, data.federation)[0] if repair else data.federation
            found[name] = trained(piece, algorithm, federation, evaluator, device)
    return found if piece.noise != "none" else {CLEAN_LABELS: found["FB-NLL(-)"]}


def trained(piece: Piece, algorithm: Algorithm, federation: Federation, evaluator: Evaluator, device: str) -> float:
    """Mean test accuracy over the sites, each on rows of its own, after training; in per cent."""
    recipe, place = RECIPES[piece.data], Hardware.of(RunConfig(device=device))
    place.prepare()
    network = build(recipe.model, tuple(federation.x.shape[1:]), len(federation.classes), piece.seed)
    how = Rounds(rounds=recipe.rounds, workers=1, evaluate_every=recipe.rounds)
    parts = (algorithm, reference(Exact), network, federation, evaluator, LOCAL, how, piece.seed, None)
    with closing(Engine(*parts, place.make_backend, place.device)) as engine:
        engine.run(lambda report: None, lambda: False, None)
        personal, _ = engine.evaluate()
    return 100 * statistics.fmean(scores["accuracy"][0] for scores in personal.values())


def pieces(data: Iterable[str]) -> list[Piece]:
    """All splits of these datasets; the seeds of a row of the table one after the other."""
    return [Piece(*one) for one in product(data, TASKS, ("none", *NOISES), SEEDS)]


def study(given: argparse.Namespace) -> None:
    """Do what the file does not have yet."""
    given.out.parent.mkdir(parents=True, exist_ok=True)
    done = known(given.out)
    todo = [piece for piece in pieces(given.data) if piece not in done]
    for data in sorted({piece.data for piece in todo}):
        features(RECIPES[data].class_features, rows(data).x)  # so that all processes find them on disk
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        asked = {pool.submit(work, piece, given.device): piece for piece in todo}
        for number, future in enumerate(as_completed(asked), 1):
            piece, found = asked[future], {name: round(value, 3) for name, value in future.result().items()}
            with given.out.open("a") as file:
                file.write(json.dumps({"piece": asdict(piece), "found": found}) + "\n")
            print(f"{number} of {len(todo)}: {piece}: {found}", flush=True)


def known(path: Path) -> dict[Piece, dict[str, float]]:
    """What a file has."""
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {Piece(**record["piece"]): record["found"] for record in records}


def table(found: dict[Piece, dict[str, float]], data: Iterable[str]) -> Iterator[str]:
    """Per cent, mean over the sites and the seeds, the worst seed in brackets; the last column has no noise."""
    columns = [*methods("mnist", 2), CLEAN_LABELS]
    yield "| data | tasks | noise | " + " | ".join(columns) + " |"
    yield "| --- " * (len(columns) + 3) + "|"
    for name, tasks, noise in product(data, TASKS, NOISES):
        kinds = [[found.get(Piece(name, tasks, kind, seed), {}) for kind in (noise, "none")] for seed in SEEDS]
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
    given = parser.parse_args(words)
    if strange := [name for name in given.data if name not in RECIPES]:
        parser.error(f"--data {','.join(strange)}: there are {', '.join(RECIPES)}")
    study(given)
    print("\n".join(table(known(given.out), given.data)))


if __name__ == "__main__":
    main()
