"""What a round costs with many real sites: `python -m benchmarks.load --sites 20`, on Linux.

Starts `imperfed serve` and as many `imperfed join` on this machine, over loopback and with keys, and prints seconds per
round, CPU seconds by kind of process, memory of a site's processes and requests through the gate. Every site has a
few rows and a linear model, so that nearly all of it is the price of messages.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.drill.actors import ROOT, Actor, command, read, until
from imperfed.flower.processes.child import free_port
from imperfed.flower.processes.keys import make_keys

START = "import benchmarks.load as l; l.count_requests(); from imperfed.cli.app import main; main()"
COUNTS = "IMPERFED_LOAD_COUNTS"
"""The environment variable that names the file into which the gate's requests are counted."""
OBSERVED = 3
"""Sites whose memory is measured; measuring it costs computing time."""
TICKS = os.sysconf("SC_CLK_TCK")


def count_requests() -> None:
    """Let the gate of this process count requests by path in a file."""
    from imperfed.flower.processes.gate import Gate

    counts, usual, path = Counter[str](), Gate.__call__, Path(os.environ[COUNTS])

    async def counted(self: Gate, scope, receive, send) -> None:
        counts[scope.get("path", "?").rsplit("/", 1)[-1]] += 1
        await usual(self, scope, receive, send)

    def write() -> None:
        while True:
            partly = path.with_suffix(".new")
            partly.write_text(json.dumps(counts))
            partly.replace(path)
            time.sleep(0.2)

    Gate.__call__ = counted
    threading.Thread(target=write, daemon=True).start()


def write_federation(folder: Path, sites: list[str], rows: int) -> None:
    """Write files of a few rows for every site."""
    draw, columns = np.random.default_rng(0), [f"c{k}" for k in range(8)]
    centres = draw.normal(size=(3, len(columns)))
    (folder / "sites").mkdir(parents=True)
    for name in sites:
        y = draw.integers(0, 3, rows)
        x = centres[y] + draw.normal(size=(rows, len(columns)))
        lines = [",".join([*(f"{v:.3f}" for v in values), "abc"[label]]) for values, label in zip(x, y, strict=True)]
        (folder / "sites" / f"{name}.csv").write_text("\n".join([",".join([*columns, "label"]), *lines]) + "\n")
    (folder / "federation.toml").write_text(
        f'name = "load"\nsites = "sites/*.csv"\n[inputs]\nnumeric = {json.dumps(columns)}\n[labels]\n'
        'kind = "exact"\ncolumn = "label"\nclasses = ["a", "b", "c"]\n'
    )


def kind_of(words: list[str]) -> str:
    """Return what a process does, from its command line."""
    line = " ".join(words)
    for part, kind in (
        ("flower-superlink", "coordinator: SuperLink"),
        ("processes.executor", "coordinator: the run"),
        (START[:20], "coordinator: serve, gate"),
        ("processes.site_node", "site: node, tasks"),
        ("imperfed join", "site: join"),
        ("benchmarks.light_sites", "sites, all processes"),
    ):
        if part in line:
            return kind
    return "other"


def spent(pids: list[int]) -> Counter[str]:
    """Return the CPU seconds of processes and of their children that have ended, by kind."""
    total = Counter[str]()
    for pid in pids:
        stat = read(Path(f"/proc/{pid}/stat")).rpartition(") ")[2].split()
        if stat:
            total[kind_of(command(pid))] += sum(map(int, stat[11:15])) / TICKS
    return total


def memory(pid: int) -> tuple[float, float]:
    """Return the proportional and the resident memory of a process, in MB."""
    found = dict(re.findall(r"^(Pss|Rss):\s+(\d+) kB", read(Path(f"/proc/{pid}/smaps_rollup")), re.MULTILINE))
    return int(found.get("Pss", 0)) / 1024, int(found.get("Rss", 0)) / 1024


@dataclass
class Memory:
    """The most memory that the processes of some sites took, sampled in a thread."""

    actors: list[Actor]
    processes: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By kind: PSS and RSS of the largest."""
    site: float = 0.0
    """All processes of one site together (PSS)."""
    done: bool = False

    def watch(self) -> None:
        while not self.done:
            for actor in self.actors:
                sizes = [(kind_of(command(pid)), *memory(pid)) for pid in actor.pids()]
                self.site = max(self.site, sum(pss for _, pss, _ in sizes))
                for kind, pss, rss in sizes:
                    before = self.processes.get(kind, (0.0, 0.0))
                    self.processes[kind] = max(before[0], pss), max(before[1], rss)
            time.sleep(0.5)


class Load:
    """One run with many sites."""

    def __init__(self, home: Path, sites: int, rounds: int, rows: int, light: bool) -> None:
        self.home, self.rounds, self.light, self.counts = home, rounds, light, home / "counts.json"
        self.names = [f"s{k:03}" for k in range(sites)]
        write_federation(home / "data", self.names, rows)
        make_keys(home / "keys", self.names, ["localhost"], days=1)
        os.environ[COUNTS] = str(self.counts)

    def start(self) -> None:
        """Start the coordinator and the sites."""
        port, settings = free_port(), ["--rounds", self.rounds, "--model", "logistic", "--set", "local.steps=2"]
        where = ["--host", "localhost", "--port", port, "--keys", self.home / "keys" / "coordinator"]
        words = ["serve", self.home / "data" / "federation.toml", "fedavg", *settings, *where]
        self.serving = Actor(self.home, "serve", *words, "--out", self.home / "run", start=["-c", START])
        until(self.serving.out, "^serving")
        joins = [self.join(name, port) for name in self.names]
        if not self.light:
            self.actors = [Actor(self.home, name, *words) for name, words in zip(self.names, joins, strict=True)]
            return
        lines = self.home / "light.jsonl"
        outs = [str(self.home / f"{name}.out") for name in self.names]
        lines.write_text("".join(json.dumps(one) + "\n" for one in zip(joins, outs, strict=True)))
        self.actors = [Actor(self.home, "sites", lines, start=["-m", "benchmarks.light_sites"])]

    def join(self, name: str, port: int) -> list[str]:
        """Return the words of a site's command."""
        own = ["--data", self.home / "data" / "sites" / f"{name}.csv", "--state", self.home / "state" / name]
        own += ["--keys", self.home / "keys" / f"site-{name}", "--accept"]
        return ["join", f"localhost:{port}", *map(str, own)]

    def pids(self) -> list[int]:
        """Return all processes of the coordinator and the sites."""
        return [int(p.parent.name) for p in Path("/proc").glob("[0-9]*/environ") if f"DRILL={self.home}" in read(p)]

    def passed(self) -> Counter[str]:
        """Return the requests that have come to the gate so far, by path."""
        return Counter(json.loads(self.counts.read_text()))

    def measure(self, seconds: float) -> None:
        """Wait for the rounds, and print what they cost from the second on."""
        began, watched = time.monotonic(), Memory([] if self.light else self.actors[:OBSERVED])
        print(f"{len(self.names)} sites; seconds after the start:", flush=True)
        for sign, what in (
            (r"^\S+ has connected", "the first has said hello"),
            (r"^one step to try", "all have said hello, and the first has tried a step"),
            (r"^fedavg on", "all have tried a step"),
            (r"^round 1/", "the first round is done"),
        ):
            until(self.serving.out, sign, seconds)
            print(f"  {time.monotonic() - began:5.0f} {what}", flush=True)
        at, cpu, passed = time.monotonic(), spent(self.pids()), self.passed()
        thread = threading.Thread(target=watched.watch)
        thread.start()
        walls = []
        for round in range(2, self.rounds):  # the last one ends the run: it is another kind of round
            before = time.monotonic()
            until(self.serving.out, rf"^round {round}/", seconds)
            walls.append(time.monotonic() - before)
        wall, asked = time.monotonic() - at, self.passed() - passed
        used = spent(self.pids()) - cpu
        watched.done = True
        thread.join()
        self.tell(walls, wall, used, asked, watched)

    def tell(self, walls: list[float], wall: float, used: Counter[str], asked: Counter[str], watched: Memory) -> None:
        """Print the figures."""
        rounds, exchanges = len(walls), len(walls) * len(self.names)
        print(
            f"seconds per round: median {statistics.median(walls):.2f} ({', '.join(f'{w:.2f}' for w in walls)}), on "
            f"{os.cpu_count()} cores of which this run had {used.total() / wall:.2f}"
        )
        print(f"CPU seconds per exchange with one site: {used.total() / exchanges:.3f}")
        for kind, seconds in sorted(used.items()):
            print(f"  {kind:26} {seconds / exchanges:.3f}   {seconds / rounds:8.2f} in a round")
        if watched.site:
            print(f"memory of a site: {watched.site:.0f} MB (PSS of all its processes)")
        for kind, (pss, rss) in sorted(watched.processes.items()):
            print(f"  {kind:26} {pss:.0f} MB PSS, {rss:.0f} MB RSS")
        print(f"requests through the gate per exchange: {asked.total() / exchanges:.1f}")
        print("  " + ", ".join(f"{path} {n / exchanges:.2f}" for path, n in asked.most_common()))

    def end(self, seconds: float) -> None:
        """Wait for the end of the run: the last round, and every site's own results."""
        began = time.monotonic()
        code = self.serving.popen.wait(seconds)
        print(f"ended with code {code}, {time.monotonic() - began:.0f} s after these rounds", flush=True)
        missed = re.findall(r"^(\S+) has yet to get its results", read(self.serving.out), re.MULTILINE)
        while len(drawn := list(self.home.glob("state/*/*/report.html"))) < len(self.names) - len(missed):
            if time.monotonic() - began > seconds:
                break
            time.sleep(0.5)
        print(f"{len(missed)} sites missed their last message: {missed}; {len(drawn)} reports were drawn", end=" ")
        print(f"{time.monotonic() - began:.0f} s after these rounds", flush=True)


@contextmanager
def cleaned_up(keep: bool) -> Iterator[Path]:
    """Yield a temporary folder; stop whatever was started, and remove it."""
    home = Path(tempfile.mkdtemp(prefix="load-"))
    try:
        yield home
    finally:
        for actor in Actor.all:
            actor.kill_now()
        if keep:
            print(f"kept in {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--rows", type=int, default=40, help="rows of a site")
    parser.add_argument("--light", action="store_true", help="fork all sites from one process")
    parser.add_argument("--longest", type=float, default=900.0, help="seconds to wait for a round")
    parser.add_argument("--keep", action="store_true", help="keep the files")
    args = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with cleaned_up(args.keep) as home:
        load = Load(home, args.sites, args.rounds, args.rows, args.light)
        load.start()
        load.measure(args.longest)
        load.end(args.longest)


if __name__ == "__main__":
    main()
