"""Seconds per round and peak memory of FedALC with thousands of labels, one per site: `python -m benchmarks.labels`.

Synthetic: 100,000 examples of 60 of 200,000 features and about 5 labels each, the text model at the paper's widths, 50
neighbours. Every size is measured in a fresh process, since a memory peak never goes down.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch

from imperfed.algorithms._class_embeddings import HEAD
from imperfed.algorithms.fedalc import FedALC
from imperfed.core.federation import Federation
from imperfed.core.labels import Positive
from imperfed.data.oracle import Oracle
from imperfed.engine.engine import Engine
from imperfed.engine.local_training import Local
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.evaluator import Evaluator
from imperfed.models import ModelSpec, build
from imperfed.nn.embeddings import gradient

EXAMPLES, FEATURES, WORDS, LABELS = 100_000, 200_000, 60, 5
RESULTS = Path(__file__).parent / "results" / "labels.json"


def federation(classes: int, examples: int) -> Federation:
    """Return a federation with each label at its own site; words and labels are drawn so that few are frequent."""
    draw = torch.Generator().manual_seed(0)
    x = torch.zeros(examples, 2, WORDS + 1)
    x[:, 0] = FEATURES
    x[:, 0, :WORDS] = (FEATURES * torch.rand(examples, WORDS, generator=draw) ** 2).floor()
    x[:, 1, :WORDS] = 1
    label = (classes * torch.rand(examples, LABELS, generator=draw) ** 2).long()
    label[:classes, 0] = torch.arange(classes)  # every site has an example
    cells = torch.unique(torch.arange(examples)[:, None] * classes + label)
    at, label = cells // classes, cells % classes
    order = label.argsort(stable=True)
    at, label = at[order], label[order]
    starts = (0, *label.bincount(minlength=classes).cumsum(0).tolist())
    names = tuple(map(str, range(classes)))
    return Federation("made up", x, Positive(label, classes), starts, names, names, names, x[:0], at=at)


def measure(classes: int, examples: int, rounds: int) -> dict[str, float]:
    """Measure the seconds before the first round, of a round and of its server step, and the peak in GB."""
    fed = federation(classes, examples)
    method = FedALC(one_pass=True, neighbours=50, hashed="input", lr_server=0.01)
    network = build(ModelSpec("text", features=FEATURES), tuple(fed.x.shape[1:]), classes, 0)
    assert method.objective is not None
    began = time.perf_counter()
    evaluator = Evaluator(Oracle(None, (), ()))
    engine = Engine(method, method.objective, network, fed, evaluator, Local(steps=1), Rounds(workers=1), 0)
    opened = time.perf_counter()
    for round in range(rounds):
        engine.round(round)
    done = time.perf_counter()
    gradient(engine.population.spec.layout.view(engine.state.server["w"], HEAD), method.force(engine.state.server))
    return {
        "labels": classes,
        "rows": fed.starts[-1],
        "label collection, s": opened - began,
        "a round, s": (done - opened) / rounds,
        "of it the server's step, s": time.perf_counter() - done,
        "processor time of all, s": time.process_time(),
        "peak, GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--labels", default="1000,4000,13000")
    parser.add_argument("--examples", type=int, default=EXAMPLES)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    sizes = given.labels.split(",")
    if len(sizes) == 1:
        torch.set_num_threads(given.threads)
        print(json.dumps(measure(int(sizes[0]), given.examples, given.rounds)))
        return
    found = []
    for size in sizes:
        more = [f"--{key}={getattr(given, key)}" for key in ("examples", "rounds", "threads")]
        told = subprocess.run(
            [sys.executable, "-m", "benchmarks.labels", f"--labels={size}", *more], stdout=subprocess.PIPE, check=True
        )
        found.append(json.loads(told.stdout))
        print({key: round(value, 1) for key, value in found[-1].items()}, flush=True)
    RESULTS.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
