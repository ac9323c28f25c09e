"""One process with a worker per core against several ranks on this machine, on the same work.

python -m benchmarks.scale ranks [--quick] [--works W1,W2,W3] [--ranks 2,4]

Both take turns, round by round, so that other load on the machine affects them alike; medians are compared, of the
time and of the processor time of all processes. Ranks are processes with their part of the cores; what travels goes
over the loopback interface, by gloo. `--methods` runs every method of the catalogue on a toy federation instead, in one
process and over two ranks, and notes what is looked at one by one and how far the ends are apart.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks.cpu import imperfed_engine, others
from benchmarks.raw import WORKS
from imperfed.engine.backends.distributed.distributed_backend import DistributedBackend
from imperfed.engine.backends.distributed.group import RankGroup
from imperfed.engine.backends.process import ProcessBackend
from imperfed.engine.backends.task_pool import cores
from imperfed.experiments.device import Hardware
from imperfed.experiments.ranks import RankHardware, children, start_ranks, stop_ranks
from imperfed.testing.cases import cases
from imperfed.testing.clauses import start
from imperfed.testing.toy import everything

RESULTS = Path(__file__).parents[1] / "results" / "ranks.json"
ROUNDS = {"W1": 7, "W2": 41, "W3": 21}
TICKS = os.sysconf("SC_CLK_TCK")


def processor_time() -> float:
    """Return the processor seconds of this process, its workers, and the other ranks."""
    pids = [os.getpid(), *(child.pid for child in multiprocessing.active_children()), *children()]
    fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
    return sum(int(field[11]) + int(field[12]) for field in fields) / TICKS


def others_time() -> float:
    """Return the processor seconds of everything on this machine that `processor_time` does not count."""
    mine = os.times()
    return others() + mine.user + mine.system - processor_time()


def timed(engine: Any, t: int) -> tuple[float, float]:
    """Return the seconds and the processor seconds of a round."""
    before, start = processor_time(), time.perf_counter()
    engine.round(t)
    return time.perf_counter() - start, processor_time() - before


def compare(name: str, group: RankGroup, repetitions: int) -> dict[str, Any]:
    """Let one process and the ranks make the same rounds in turn."""
    work, place = WORKS[name], RankHardware(Hardware(torch.device("cpu"), "float32"))
    alone = imperfed_engine(work, cores(), ProcessBackend)
    apart = imperfed_engine(
        work, 0, lambda held, on_duty, workers: DistributedBackend(held, on_duty, workers, group, place)
    )
    for engine in (alone, apart):  # the first round starts processes, and deals the sites out
        engine.round(0)
    traffic, start, before = apart.backend.traffic.copy(), time.perf_counter(), others_time()
    rounds = [(timed(alone, t), timed(apart, t)) for t in range(1, repetitions + 1)]
    busy = max(0.0, (others_time() - before) / (time.perf_counter() - start))
    travelled = {what: (size - traffic[what]) / repetitions for what, size in apart.backend.traffic.items()}
    one, other = alone.state.server["w"], apart.state.server["w"]
    for engine in (alone, apart):
        engine.close()
    return {
        "seconds": median(a[0] for a, _ in rounds),
        "ratio": median(b[0] / a[0] for a, b in rounds),
        "processor_ratio": sum(b[1] for _, b in rounds) / sum(a[1] for a, _ in rounds),
        "bytes_per_round": travelled,
        "largest_difference": float((one - other).abs().max() / one.abs().max()),
        "rounds": repetitions,
        "cores_taken_by_others": busy,
    }


def compare_methods(group: RankGroup) -> list[dict[str, Any]]:
    """Return for every method what rank 0 looks at one by one, and how far two rounds end from those of one process."""
    place, lines = RankHardware(Hardware(torch.device("cpu"), "float32")), []
    for case in cases():
        alone = everything(start(case).go())
        engine = start(case, make_backend=lambda *given: DistributedBackend(*given, group, place)).go()
        apart = everything(engine)
        farthest = max(gap(t, apart[name]) for name, t in alone.items())
        lines.append(
            {
                "method": case.algorithm.name,
                "objective": case.objective.name,
                "one by one": sorted(engine.backend.gathers),
                "gap": farthest,
            }
        )
    return lines


def gap(a: Tensor, b: Tensor) -> float:
    """Return the largest difference of two tensors, as a share of the largest number; 0 if they are equal."""
    return 0.0 if torch.equal(a, b) else float((a.double() - b.double()).abs().max() / a.double().abs().max())


def line(name: str, ranks: int, row: dict[str, Any]) -> str:
    """Return one line of the table."""
    travelled = sum(row["bytes_per_round"].values()) / 1e6
    return (
        f"{name}  {ranks} ranks  {row['seconds']:8.4f} s  {row['ratio']:6.2f}  {row['processor_ratio']:6.2f}"
        f"  {travelled:8.2f} MB  {row['largest_difference']:.1e}  {row['cores_taken_by_others']:.1f}"
    )


def main(argv: list[str]) -> int:
    """Print and store the table."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.scale ranks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a quarter of the repetitions")
    parser.add_argument("--works", default="W1,W2,W3")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--methods", action="store_true", help="compare methods, not times")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    found: dict[str, Any] = {"methods": methods()} if options.methods else {"works": works(options)}
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    RESULTS.write_text(json.dumps(known | {"versions": versions, "cores": cores()} | found, indent=1) + "\n")
    return 0


def works(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Measure the works that are named."""
    results: dict[str, dict[str, Any]] = {}
    print("work          one process   ratio  of CPU  travels a round  differs  cores taken by others")
    for ranks in map(int, options.ranks.split(",")):
        group = start_ranks(ranks)
        for name in options.works.split(","):
            row = compare(name, group, max(2, ROUNDS[name] // (4 if options.quick else 1)))
            results.setdefault(name, {})[str(ranks)] = row
            print(line(name, ranks, row), flush=True)
        stop_ranks()
    return results


def methods() -> list[dict[str, Any]]:
    """Compare all methods over two ranks."""
    found = compare_methods(start_ranks(2))
    stop_ranks()
    for one in found:
        print(f"{one['method'] + ' ' + one['objective']:40} {one['gap']:.1e}  {', '.join(one['one by one'])}")
    return found
