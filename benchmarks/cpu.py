"""Seconds per round and peak memory of imperfed on the CPU, compared with a plain PyTorch loop for the same work.

python -m benchmarks.cpu [--quick]

All variants take turns, round by round, so that other load on the machine affects them alike; medians are compared.
Memory is measured in fresh processes, before this one has grown: a process inherits the peak of the one that starts it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import torch

from benchmarks.raw import LR, MOMENTUM, WORKS, RawLoop, Work

RESULTS = Path(__file__).parent / "results" / "cpu.json"
VARIANTS = {"raw": "raw loop, 1 thread", "one": "imperfed, 1 worker", "two": "imperfed, 2 workers"}
ROUNDS = {"W1": 7, "W2": 31, "W3": 21}
TIME_TARGETS = {"W1": {"one": 1.0, "two": 0.5}, "W2": {"one": 0.75, "two": 0.4}, "W3": {"one": 1.0, "two": 0.5}}
MEMORY_TARGET = 1.2
"""Multiple of the raw loop's peak; in addition, two workers may take one more interpreter."""
BUSY = 0.1
"""The number of cores used by other processes above which the figures cannot be trusted."""
Figures = dict[str, Any]


class Runner(Protocol):
    """One implementation of the work."""

    def round(self, t: int, /) -> Any:
        """Do round t."""

    def close(self) -> None:
        """Free what it holds."""


def imperfed_engine(work: Work, workers: int, make_backend: Any = None) -> Any:
    """Return an `Engine` that does the same work; `make_backend`: by another backend than that of worker processes."""
    from imperfed.algorithms import objectives
    from imperfed.algorithms.fedavg import FedAvg
    from imperfed.core.federation import Federation
    from imperfed.core.labels import Exact
    from imperfed.data.oracle import Oracle
    from imperfed.engine.backends.process import ProcessBackend
    from imperfed.engine.engine import Engine
    from imperfed.engine.local_training import Local
    from imperfed.engine.schedule import Rounds
    from imperfed.evaluation.evaluator import Evaluator
    from imperfed.models import ModelSpec, build

    x, y = work.data()
    federation = Federation(
        "synthetic",
        x,
        Exact(y, work.classes),
        tuple(range(0, len(x) + 1, work.rows)),
        tuple(f"site {k}" for k in range(work.sites)),
        tuple(f"class {c}" for c in range(work.classes)),
        tuple(str(i) for i in range(len(x))),
        x[:0],
    )
    return Engine(
        FedAvg(),
        objectives()["cross-entropy"](),
        build(ModelSpec(work.model), work.shape, work.classes, 0),
        federation.check(),
        Evaluator(Oracle(None, (), ())),
        Local(steps=work.steps, batch=work.batch, lr=LR, momentum=MOMENTUM),
        Rounds(participation=work.on_duty / work.sites, workers=workers),
        seed=0,
        make_backend=make_backend or ProcessBackend,
    )


def make(work: Work, variant: str) -> Runner:
    runner: Runner = RawLoop(work) if variant == "raw" else imperfed_engine(work, 1 if variant == "one" else 2)
    return runner


# -- time -------------------------------------------------------------------------------------------------------------


def check_same_work(raw: Any, engine: Any) -> None:
    """Check in round 0 that both see as many examples of one shape in as many steps, with parameters of equal shapes.

    If several sites step together, their batches come as one, which counts as one batch per site.
    """
    work, runtime = raw.work, engine.population.runtime
    of_raw: Counter[tuple[int, ...]] = Counter()
    hook = raw.net.register_forward_pre_hook(lambda _, inputs: count(of_raw, inputs[0], work.batch))
    raw.round(0)
    hook.remove()
    spec, of_engine = runtime.spec, Counter[tuple[int, ...]]()
    runtime.spec = replace(spec, objective=watching(spec.objective, of_engine, work.batch))
    engine.round(0)
    runtime.spec = spec
    assert of_raw == of_engine == {(work.batch, *work.shape): work.on_duty * work.steps}, (of_raw, of_engine)
    shapes = [[tuple(p.shape) for p in net.parameters()] for net in (raw.net, runtime.net.module)]
    assert shapes[0] == shapes[1], shapes


def count(seen: Counter[tuple[int, ...]], x: torch.Tensor, batch: int) -> None:
    """Record the batches of this size in an input, and the remainder."""
    sites, over = divmod(len(x), batch)
    seen.update({(batch, *x.shape[1:]): sites} | ({(over, *x.shape[1:]): 1} if over else {}))


def watching(objective: Any, seen: Counter[tuple[int, ...]], size: int) -> Any:
    """Return an objective that records the shape of every batch."""

    class Watching(type(objective)):  # type: ignore[misc]
        def loss(self, net: Any, batch: Any) -> Any:
            count(seen, batch.x, size)
            return objective.loss(net, batch)

    return Watching()


def seconds(runner: Runner, t: int) -> float:
    start = time.perf_counter()
    runner.round(t)
    return time.perf_counter() - start


def others() -> float:
    """Return the processor seconds used by all other processes since the machine started."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    mine = os.times()
    everybody = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return everybody - mine.user - mine.system - mine.children_user - mine.children_system


def time_work(name: str, repetitions: int) -> Figures:
    """Measure seconds per round of each variant, and the median ratio to the raw loop's preceding round."""
    start, before = time.perf_counter(), others()
    runners = {variant: make(WORKS[name], variant) for variant in VARIANTS}
    check_same_work(runners["raw"], runners["one"])
    runners["two"].round(0)
    times = [{v: seconds(r, t) for v, r in runners.items()} for t in range(1, repetitions + 1)]
    w = [runners[v].state.server["w"] for v in ("one", "two")]  # type: ignore[attr-defined]
    assert torch.equal(*w), "the number of workers changed the result"
    for runner in runners.values():
        runner.close()
    busy = (others() - before) / (time.perf_counter() - start)
    return {
        variant: {
            "seconds": median(t[variant] for t in times),
            "ratio": median(t[variant] / t["raw"] for t in times),
            "rounds": repetitions,
            "cores_taken_by_others": busy,
        }
        for variant in VARIANTS
    }


# -- memory -----------------------------------------------------------------------------------------------------------


def peak(who: int) -> float:
    """Return the peak resident memory in MB."""
    return resource.getrusage(who).ru_maxrss / 1024


def rollup(pid: int, kind: str) -> float:
    """Return the sum of the lines of this kind in the memory map of a process, in MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(kind)) / 1024


def sample_memory(stop: threading.Event, samples: list[float]) -> None:
    """Sample the memory of this process plus the unshared memory of its workers, until stopped."""
    while not stop.wait(0.02):
        workers = [rollup(child.pid or 0, "Private_") for child in multiprocessing.active_children()]
        samples.append(rollup(os.getpid(), "Rss:") + sum(workers))


def report_memory(name: str, variant: str) -> None:
    """Run two rounds in a separate process, then report its peak, that of its largest worker, and the total."""
    samples: list[float] = []
    if name in WORKS:
        runner = make(WORKS[name], variant)
        stop = threading.Event()
        sampler = threading.Thread(target=sample_memory, args=(stop, samples))
        sampler.start()
        for t in range(2):
            runner.round(t)
        stop.set()
        sampler.join()
        runner.close()
    own, worker = peak(resource.RUSAGE_SELF), peak(resource.RUSAGE_CHILDREN)
    print(json.dumps({"self_mb": own, "worker_mb": worker, "together_mb": max(own, *samples) if samples else own}))


def measure_memory(name: str, variant: str) -> Figures:
    command = [sys.executable, "-m", "benchmarks.cpu", "--memory", name, variant]
    figures: Figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return figures


# -- the table --------------------------------------------------------------------------------------------------------


def judge(name: str, figures: dict[str, Figures], interpreter: float) -> None:
    """Add the targets and whether they are reached."""
    for variant, target in TIME_TARGETS[name].items():
        row = figures[variant]
        row["target_ratio"] = target
        row["target_mb"] = MEMORY_TARGET * figures["raw"]["self_mb"] + (interpreter if variant == "two" else 0)
        row["fast_enough"] = row["ratio"] <= target
        row["small_enough"] = row["together_mb"] <= row["target_mb"]


def table(works: dict[str, dict[str, Figures]]) -> str:
    """Return all figures, one line per variant."""
    lines = [f"{'':22} s a round  ratio  target       MB: self  a worker  together  target"]
    for name, figures in works.items():
        lines.append(f"{name}: {WORKS[name].about}")
        busy = figures["raw"]["cores_taken_by_others"]
        if busy > BUSY:
            lines.append(f"  DISTURBED: other processes took {busy:.1f} cores meanwhile, which hurts two workers most")
        for variant, row in figures.items():
            target = memory = " " * 13
            if variant != "raw":
                target = f"{row['target_ratio']:8.2f} {'ok' if row['fast_enough'] else 'MISS':4}"
                memory = f"{row['target_mb']:8.0f} {'ok' if row['small_enough'] else 'MISS':4}"
            lines.append(
                f"  {VARIANTS[variant]:20}{row['seconds']:10.4f}{row['ratio']:7.2f}{target}"
                f"{row['self_mb']:12.0f}{row['worker_mb']:10.0f}{row['together_mb']:10.0f}{memory}"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the repetitions")
    parser.add_argument(
        "--memory", nargs=2, metavar=("WORK", "VARIANT"), help="the peak memory of one variant, as JSON"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory:
        report_memory(*options.memory)
        return
    interpreter = measure_memory("none", "raw")["self_mb"]
    works = {name: {v: measure_memory(name, v) for v in VARIANTS} for name in WORKS}
    for name, figures in works.items():
        timed = time_work(name, ROUNDS[name] // 4 if options.quick else ROUNDS[name])
        for variant in VARIANTS:
            figures[variant] |= timed[variant]
        judge(name, figures, interpreter)
    print(table(works))
    RESULTS.parent.mkdir(exist_ok=True)
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    result = {"versions": versions, "cores": os.cpu_count(), "interpreter_mb": interpreter, "works": works}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
