"""Many sites: what a round takes with 100 on duty of 1,000 to 100,000, and with one site for each of 670,000 labels.

python -m benchmarks.scale sites [crowd] [labels] [shared] [--sites 1000,10000,100000] [--methods fedavg,scaffold] ...

`crowd`: six rows a site, of which one is tested on; an MLP of 2,762 weights; five local steps of four rows. `labels`:
federations in the shape of sets from the Extreme Classification repository (numbers of labels, examples, features, and
both per example), drawn at random, one site per label, all of them on duty. `shared`: the same over two ranks of this
machine (not by default), fedaws on the two shapes with the most labels. Every line is measured in a fresh process,
since a peak of memory never goes down. Seconds are processor time, of one thread.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from imperfed.algorithms import catalogue
from imperfed.core.federation import Federation
from imperfed.core.labels import Positive
from imperfed.data.dataset import Dataset
from imperfed.data.federate import federate
from imperfed.data.oracle import Oracle
from imperfed.engine.backends.distributed.distributed_backend import DistributedBackend
from imperfed.engine.engine import Engine
from imperfed.engine.local_training import Local
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.evaluator import Evaluator
from imperfed.experiments.device import Hardware
from imperfed.experiments.experiment import Experiment
from imperfed.experiments.ranks import backend_of, children
from imperfed.experiments.resolving import resolve
from imperfed.experiments.watch import Watch
from imperfed.models import ModelSpec, build
from imperfed.results.folder import RunFolder

RESULTS = Path(__file__).parents[1] / "results" / "sites.json"
Figures = dict[str, Any]
ROWS, COLUMNS, CLASSES, ON_DUTY, ROUNDS = 6, 32, 10, 100, 6


class Stopwatch:
    """Processor time of this process, phase by phase."""

    def __init__(self) -> None:
        self.figures: Figures = {}

    def time(self, what: str, work: Callable[[], Any]) -> Any:
        """Do the work and note how long it takes."""
        began = time.process_time()
        result = work()
        self.figures[f"{what}, s"] = time.process_time() - began
        return result

    def memory(self, what: str) -> None:
        """Note the memory of this process now, and its peak so far."""
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.figures[f"{what}, MB"] = pages * resource.getpagesize() / 1e6


def peak(process: int | str = "self") -> float:
    """Return the peak of a process's memory so far, in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


# -- many sites, few on duty -------------------------------------------------------------------------------------------


def made_up(sites: int) -> Dataset:
    """Return so many rows for every site, from ten overlapping classes."""
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(CLASSES, (ROWS * sites,), generator=draw)
    x = torch.randn(len(y), COLUMNS, generator=draw) + 2 * torch.eye(CLASSES, COLUMNS)[y]
    return Dataset("made up", x, y, None, tuple(map(str, range(CLASSES))))


def crowd(method: str, sites: int, site_memory: float) -> Figures:
    """Measure a run from its data to its report."""
    watch = Stopwatch()
    words = {"method": method, "data": "digits", "kind": "exact", "sites": sites, "partition": "iid", "public": 0.0}
    words |= {"participation": ON_DUTY / sites, "rounds": ROUNDS, "workers": 1, "site_memory": site_memory}
    words |= {"model": "mlp", "model.hidden": 64, "local.steps": 5, "local.batch": 4}
    config, rows = resolve(words=words), made_up(sites)
    data = watch.time("data", lambda: federate(rows, config.split, config.labels, 0))
    experiment = watch.time("engine", lambda: Experiment(config, data))
    watch.memory("before the rounds")
    engine, rounds = experiment.engine, []
    with closing(experiment), tempfile.TemporaryDirectory() as out:
        folder = RunFolder.create(Path(out), config, {})
        engine.state.lie_in(folder.checkpoint.parent)
        for t in range(ROUNDS):
            rounds.append(watch.time("a round", lambda t=t: engine.round(t)))  # type: ignore[misc]
            engine.state.round += 1
            rounds[-1] = watch.figures["a round, s"]
        watch.figures["a round, s"] = median(rounds[1:])
        watch.memory("after the rounds")
        judging = engine.judging(engine.population.evaluator.sites)
        watch.time("evaluating after a round", lambda: engine.evaluate(sites=judging))
        watch.time("a checkpoint", lambda: engine.state.save(folder.checkpoint))
        watch.time("results of the run", lambda: experiment.go(folder, Watch()))
        files = [path for path in folder.path.rglob("*") if path.is_file()]
        watch.figures |= {"files": len(files), "folder, MB": sum(path.stat().st_size for path in files) / 1e6}
    return {"method": method, "sites": sites, "on duty": ON_DUTY} | watch.figures | {"peak, MB": peak()}


# -- one site per label ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """The shape of a set with many labels, as the Extreme Classification repository describes it."""

    labels: int
    examples: int
    features: int
    words: int
    """Features per example."""
    per_example: float
    """Labels per example."""


SHAPES = {
    "AmazonCat-13K": Shape(13_330, 1_186_239, 203_882, 71, 5.04),
    "LF-AmazonTitles-131K": Shape(131_073, 294_805, 40_000, 6, 2.29),
    "Amazon-670K": Shape(670_091, 490_449, 135_909, 76, 5.45),
}


def federation(shape: Shape, share: float) -> Federation:
    """Return a share of the examples, each label at its own site; few words and few labels are frequent."""
    draw, examples = torch.Generator().manual_seed(0), round(share * shape.examples)
    x = torch.zeros(examples, 2, shape.words + 1)
    x[:, 0] = shape.features
    x[:, 0, : shape.words] = (shape.features * torch.rand(examples, shape.words, generator=draw) ** 2).floor()
    x[:, 1, : shape.words] = 1
    more = round(shape.per_example * examples)
    drawn = (shape.labels * torch.rand(more, generator=draw) ** 2).long()
    at = torch.randint(examples, (more + shape.labels,), generator=draw)
    label = torch.cat([torch.arange(shape.labels), drawn])  # every site has an example
    cells = torch.unique(at * shape.labels + label)
    at, label = cells // shape.labels, cells % shape.labels
    order = label.argsort(stable=True)
    at, label = at[order], label[order]
    starts = (0, *label.bincount(minlength=shape.labels).cumsum(0).tolist())
    names = tuple(map(str, range(shape.labels)))
    return Federation("made up", x, Positive(label, shape.labels), starts, names, names, names, x[:0], at=at)


def labels(method: str, name: str, share: float, width: int, drawn: int, rounds: int, ranks: int = 1) -> Figures:
    """Measure label collection, rounds, and of a round the pass over the rows."""
    shape, watch = SHAPES[name], Stopwatch()
    make_backend = backend_of(Hardware(torch.device("cpu"), "float32", gpus=tuple(range(ranks))))
    fed = watch.time("data", lambda: federation(shape, share))
    algorithm = catalogue()[method](one_pass=True, neighbours=50, lr_server=0.01, drawn=drawn, **OWN.get(method, {}))
    network = build(ModelSpec("text", features=shape.features, widths=(width, width)), fed.x.shape[1:], shape.labels, 0)
    own = Evaluator(Oracle(None, (), ()))
    parts = (algorithm, algorithm.objective, network, fed, own, Local(steps=1), Rounds(workers=1), 0)
    engine = watch.time("before round 1", lambda: Engine(*parts, make_backend=make_backend))
    watch.memory("before the rounds")
    passes, whole, inner = [], [], engine.backend.sum_gradients

    def timed(*arguments: Any) -> Any:
        began = time.process_time()
        result = inner(*arguments)
        passes.append(time.process_time() - began)
        return result

    engine.backend.sum_gradients = timed  # type: ignore[method-assign]
    for t in range(rounds):
        watch.time("a round", lambda t=t: engine.round(t))  # type: ignore[misc]
        whole.append(watch.figures["a round, s"])
    watch.figures |= {"a round, s": min(whole), "of it the pass over the rows, s": min(passes)}
    numbers = {"labels": shape.labels, "examples": len(fed.x), "rows": fed.starts[-1]}
    if isinstance(engine.backend, DistributedBackend):
        W = engine.population.spec.layout.fields["head.weight"]
        watch.figures["class matrix, MB"] = 4 * W.shape.numel() / 1e6
        watch.figures |= {f"{what}, MB a round": n / 1e6 / rounds for what, n in engine.backend.traffic.items()}
        watch.figures["peak of rank 1, MB"] = peak(children()[0])
    return {"method": method, "shape": name, "drawn": drawn} | numbers | watch.figures | {"peak, MB": peak()}


OWN: dict[str, dict[str, Any]] = {"fedalc": {"hashed": "input"}}


# -- all of it ---------------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is named, or everything, and keep the figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.scale sites", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=[], metavar="crowd|labels|shared", help="what to measure")
    parser.add_argument("--sites", default="1000,10000,100000")
    parser.add_argument("--methods", default="fedavg,scaffold,fedper")
    parser.add_argument("--site-memory", type=float, default=Rounds.site_memory, help="rounds.site_memory, in MB")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--label-methods", default="fedaws,fedalc")
    parser.add_argument("--examples", type=float, default=1.0, help="share of each shape's examples")
    parser.add_argument("--width", type=int, default=64, help="of the text model's two layers, and of the embeddings")
    parser.add_argument("--drawn", type=int, default=10_000, help="classes between which the server's step acts")
    parser.add_argument("--rounds", type=int, default=2, help="with labels")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.one:
        torch.set_num_threads(1)
        print(json.dumps(one(json.loads(given.one))))
        return 0
    for part in given.parts or ("crowd", "labels"):
        lines = [fresh(task) for task in tasks(part, given)]
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps(known | {part: lines}, indent=1) + "\n")
    return 0


def tasks(part: str, given: argparse.Namespace) -> list[Figures]:
    """Return what to measure, each as the words with which a fresh process is told."""
    if part == "crowd":
        pairs = [(m, int(s)) for m in given.methods.split(",") for s in given.sites.split(",")]
        return [{"method": m, "sites": s, "site_memory": given.site_memory} for m, s in pairs]
    if part == "shared":
        given.label_methods, given.shapes = "fedaws", "LF-AmazonTitles-131K,Amazon-670K"
    named = [(m, s) for m in given.label_methods.split(",") for s in given.shapes.split(",")]
    how = {"share": given.examples, "width": given.width, "drawn": given.drawn, "rounds": given.rounds}
    how |= {"ranks": 2} if part == "shared" else {}
    return [{"method": m, "name": s} | how for m, s in named]


def one(task: Figures) -> Figures:
    """Measure one line in this process."""
    return labels(**task) if "name" in task else crowd(**task)


def fresh(task: Figures) -> Figures:
    """Measure one line in a process of its own, and print it."""
    command = [sys.executable, "-m", "benchmarks.scale.sites", "--one", json.dumps(task)]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    figures: Figures = json.loads(told.splitlines()[-1])
    print({key: round(value, 3) if isinstance(value, float) else value for key, value in figures.items()}, flush=True)
    return figures


if __name__ == "__main__":
    sys.exit(main())
