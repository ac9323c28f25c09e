"""The captured graph compared with the loop on one GPU: equal weights, seconds per round, repeatability, memory, and a
paper's table. One run does it all.

    python -m benchmarks.gpu [--only weights,speed,repeats,memory,gaps,repairs,one_rank,table] [--out gpu.json]
    python -m benchmarks.gpu --fill docs/gpu.md      # write the page's figures from the result file; run nothing

Everything compared is measured in the same run, in turn, on the same machine. The table needs MNIST and Fashion-MNIST.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks import gpu_table
from benchmarks.gpu_gaps import gaps, one_rank, repair_seconds
from benchmarks.raw import LR, MOMENTUM, Work, lenet5, mlp
from imperfed.algorithms import catalogue, objectives
from imperfed.core.federation import Federation
from imperfed.core.labels import Exact
from imperfed.core.network import Network
from imperfed.data.oracle import Oracle
from imperfed.engine.backends.cuda.capture import CudaCapturer
from imperfed.engine.backends.cuda.graph_backend import CudaGraphBackend
from imperfed.engine.engine import Engine, MakeBackend
from imperfed.engine.local_training import Local
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.evaluator import Evaluator
from imperfed.experiments.device import Hardware
from imperfed.models import ModelSpec, build
from imperfed.testing.cases import Case, cases
from imperfed.testing.toy import everything, network, one_by_one, world

ROOT = Path(__file__).resolve().parents[1]
GPU = torch.device("cuda", 0)
CLOSE = 1e-5
"""The largest relative distance of weights at which two runs count as equal."""


@dataclass(frozen=True)
class Timed:
    """A work, its precision, its best seconds per round so far, and the speed-up to reach."""

    work: Work
    precision: str
    best: float
    gain: float | None
    compiled: bool
    rounds: int


def resnet(depth: int) -> Callable[[], nn.Module]:
    return lambda: build(ModelSpec(f"resnet{depth}"), (3, 32, 32), 10, 0)


WORKS = {
    "LeNet-5, K=4, batch 256, 40 steps": Timed(
        Work("", lenet5, "lenet5", (1, 28, 28), 10, 4, 4, 10240, 256, 40), "tf32", 0.025, 12, True, 20
    ),
    "MLP 108-256-16, K=10, batch 32, 40 steps": Timed(
        Work("", mlp, "mlp", (108,), 16, 10, 10, 1280, 32, 40), "tf32", 0.0038, 100, True, 20
    ),
    "LeNet-5, K=100, batch 32, 10 steps": Timed(
        Work("", lenet5, "lenet5", (1, 28, 28), 10, 100, 100, 320, 32, 10), "tf32", 0.029, 50, True, 20
    ),
    "ResNet-18 (GroupNorm, bf16), K=4, batch 256, 10 steps": Timed(
        Work("", resnet(18), "resnet18", (3, 32, 32), 10, 4, 4, 2560, 256, 10), "bf16", 0.135, 3, True, 8
    ),
    "ResNet-34 (GroupNorm, bf16), K=4, batch 256, 10 steps": Timed(
        Work("", resnet(34), "resnet34", (3, 32, 32), 10, 4, 4, 2560, 256, 10), "bf16", 0.253, None, True, 8
    ),
}


def captured(compiled: bool) -> MakeBackend:
    return lambda population, on_duty, workers: CudaGraphBackend(population, on_duty, CudaCapturer(GPU), compiled)


# -- the same weights --------------------------------------------------------------------------------------------------


def distance(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """Return the largest relative distance between tensors of the same name."""
    pairs = [(a[n].double().cpu(), b[n].double().cpu()) for n in a if a[n].is_floating_point() and a[n].numel()]
    return max((float((p - q).norm() / p.norm().clamp(min=1e-12)) for p, q in pairs), default=0.0)


def after_three(case: Case, net: Network, make_backend: MakeBackend, seed: int = 0) -> Engine:
    federation, oracle = world(case.kind)
    local = Local(steps=5, batch=8, lr=0.05, momentum=0.9, weight_decay=0.01)
    how = Rounds(rounds=3, participation=0.75, evaluate_every=3)
    e = Engine(
        case.algorithm, case.objective, net, federation, Evaluator(oracle), local, how, seed, None, make_backend, GPU
    )
    e.run(lambda report: None, lambda: False, None)
    return e


def weights() -> Iterator[dict[str, Any]]:
    """Compare three rounds by the loop and by the graph for every algorithm and objective, float32 without TF32."""
    Hardware(GPU, "float32").prepare()
    one, other = (after_three(cases()[0], network(), one_by_one, seed) for seed in (0, 1))
    assert distance(everything(one), everything(other)) > CLOSE, "another seed must be told from the same"
    for case in cases():
        row: dict[str, Any] = {"case": str(case)}
        try:
            loop, graph = (after_three(case, network(), make_backend) for make_backend in (one_by_one, captured(False)))
            assert isinstance(graph.backend, CudaGraphBackend)
            row["captured"] = bool(graph.backend.programs) if case.trains else "no local steps"
            row["why"] = graph.backend.not_captured
            row["distance"] = distance(everything(loop), everything(graph))
            row["same"] = row["distance"] <= CLOSE
        except Exception as error:
            row |= {"same": False, "error": f"{type(error).__name__}: {error}"}
        yield row


# -- seconds a round ---------------------------------------------------------------------------------------------------


class RawGpu:
    """The eager loop: plain PyTorch without a framework, batches prepared in advance on the device."""

    def __init__(self, timed: Timed) -> None:
        work = self.work = timed.work
        self.half = timed.precision == "bf16"
        x, y = (t.to(GPU) for t in work.data())
        self.batches = [
            list(zip(a.split(work.batch), b.split(work.batch), strict=True))
            for a, b in zip(x.split(work.rows), y.split(work.rows), strict=True)
        ]
        self.net = work.net().to(GPU)
        self.weights = [p.detach().clone() for p in self.net.parameters()]

    def round(self, t: int) -> None:
        total = [torch.zeros_like(w) for w in self.weights]
        for batches in self.batches:
            with torch.no_grad():
                for p, w in zip(self.net.parameters(), self.weights, strict=True):
                    p.copy_(w)
            optimiser = torch.optim.SGD(self.net.parameters(), LR, MOMENTUM)
            for x, y in batches[: self.work.steps]:
                optimiser.zero_grad()
                with torch.autocast("cuda", torch.bfloat16, enabled=self.half):
                    logits = self.net(x)
                cross_entropy(logits.float(), y).backward()
                optimiser.step()
            with torch.no_grad():
                for s, p in zip(total, self.net.parameters(), strict=True):
                    s += p / len(self.batches)
        self.weights = total


def engine(timed: Timed, make_backend: MakeBackend) -> Engine:
    work = timed.work
    x, y = work.data()
    federation = Federation(
        "synthetic",
        x,
        Exact(y, work.classes),
        tuple(range(0, len(x) + 1, work.rows)),
        tuple(f"site {k}" for k in range(work.sites)),
        tuple(f"class {c}" for c in range(work.classes)),
        tuple(map(str, range(len(x)))),
        x[:0],
    )
    net = build(ModelSpec(work.model), work.shape, work.classes, 0)
    net.halved = timed.precision == "bf16"
    local = Local(steps=work.steps, batch=work.batch, lr=LR, momentum=MOMENTUM)
    how = Rounds(participation=work.on_duty / work.sites)
    evaluator, loss = Evaluator(Oracle(None, (), ())), objectives()["cross-entropy"]()
    return Engine(catalogue()["fedavg"](), loss, net, federation, evaluator, local, how, 0, None, make_backend, GPU)


def seconds(runner: Any, t: int) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    runner.round(t)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def speed() -> Iterator[dict[str, Any]]:
    """Time the five works: the eager loop, our loop, and the graph, plain and compiled, in turn."""
    for name, timed in WORKS.items():
        Hardware(GPU, timed.precision).prepare()
        runners: dict[str, Any] = {"eager loop": RawGpu(timed), "our loop": engine(timed, one_by_one)}
        runners["graph"] = engine(timed, captured(False))
        first = {which: seconds(runner, 0) for which, runner in runners.items()}
        if timed.compiled:
            Hardware(GPU, timed.precision, True).prepare()
            runners["graph, compiled"] = engine(timed, captured(True))
            first["graph, compiled"] = seconds(runners["graph, compiled"], 0)
        slow = ("eager loop", "our loop")
        times: dict[str, list[float]] = {which: [] for which in runners}
        for t in range(1, timed.rounds + 1):
            for which, runner in runners.items():
                if which not in slow or t <= 4:
                    times[which].append(seconds(runner, t))
        row: dict[str, Any] = {"work": name, "precision": timed.precision, "first round": first}
        row |= {which: statistics.median(each) for which, each in times.items()}
        ours = row["ours"] = min(row.get("graph, compiled", torch.inf), row["graph"])
        row["gain"], row["gain wanted"] = row["eager loop"] / ours, timed.gain
        row["best before"], row["ratio to it"] = timed.best, ours / timed.best
        captured_by = [getattr(runner, "backend", None) for runner in runners.values()]
        row["why"] = [b.not_captured for b in captured_by if isinstance(b, CudaGraphBackend)]
        yield row
        del runners
        torch.cuda.empty_cache()


# -- the same seed twice ----------------------------------------------------------------------------------------------

REPEATED = [name for name in WORKS if "ResNet-34" not in name]


def repeats() -> Iterator[dict[str, Any]]:
    """Check whether two runs of one seed are bit-identical, with any kernels and with deterministic ones."""
    for name in REPEATED:
        timed = WORKS[name]
        for fixed in (False, True):
            Hardware(GPU, timed.precision, deterministic=fixed).prepare()
            ends, times = [], list[float]()
            for _ in range(2):
                e = engine(timed, captured(False))
                times += [seconds(e, t) for t in range(6)][1:]  # the first is captured
                ends.append(everything(e))
            equal = all(torch.equal(ends[0][n], ends[1][n]) for n in ends[0])
            told = {"deterministic": fixed, "equal": equal, "seconds": statistics.median(times)}
            yield {"work": name, "precision": timed.precision} | told


# -- memory ------------------------------------------------------------------------------------------------------------


def memory() -> Iterator[dict[str, Any]]:
    """Measure peak device memory with ten sites per round, out of 10, 100 and 1000 sites with the same rows."""
    for sites in (10, 100, 1000):
        work = Work("", lenet5, "lenet5", (1, 28, 28), 10, sites, 10, 64000 // sites, 32, 2)
        timed = Timed(work, "tf32", 1.0, None, False, 3)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        e = engine(timed, captured(False))
        for t in range(timed.rounds):
            e.round(t)
        assert isinstance(e.backend, CudaGraphBackend)
        assert e.backend.programs
        yield {"sites": sites, "peak MB": round(torch.cuda.max_memory_allocated() / 1e6, 1)}
        del e


# -- a whole table -----------------------------------------------------------------------------------------------------

TABLE = ("reproduce", "pfedpll/table-4.2", "--only", "mnist,fashion-mnist")


def table() -> Iterator[dict[str, Any]]:
    """Run a command in its own process, as a user does; return its seconds from start to end, and its table."""
    with TemporaryDirectory() as out:
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-m", "imperfed", *TABLE, "--out", out], check=True, cwd=ROOT)
        took = time.perf_counter() - begun
        (page,) = Path(out).rglob("table.md")
        shared = {
            line for log in Path(out).rglob("log.txt") for line in log.read_text().splitlines() if "on the GPU" in line
        }
        how = sorted({line.split(" ", 1)[1] for line in shared})
        yield {
            "command": f"imperfed {' '.join(TABLE)}",
            "seconds": round(took, 1),
            "how": how,
            "table": page.read_text(),
        }


def main() -> None:
    parts: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
        "weights": weights,
        "speed": speed,
        "repeats": repeats,
        "memory": memory,
        "gaps": gaps,
        "repairs": repair_seconds,
        "one_rank": one_rank,
        "table": table,
    }
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default=",".join(parts), help="the file keeps the others")
    options.add_argument("--out", default=ROOT / "benchmarks/results/gpu.json", type=Path)
    options.add_argument("--fill", type=Path, help="a page whose figures are written anew from --out")
    said = options.parse_args()
    if said.fill:
        said.fill.write_text(gpu_table.filled(said.fill.read_text(), json.loads(said.out.read_text())))
        return
    result: dict[str, Any] = json.loads(said.out.read_text()) if said.out.exists() else {}
    result |= {"device": torch.cuda.get_device_name(GPU), "torch": torch.__version__}
    for name in said.only.split(","):
        result[name] = []
        for row in parts[name]():
            result[name].append(row)
            print(json.dumps(row), flush=True)
            said.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
