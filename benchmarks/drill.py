"""A fault drill with real processes: `python -m benchmarks.drill`, a few minutes.

It runs in its own network namespace, which has only loopback, and prints what the kernel counted there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file

from imperfed.flower.processes.child import free_port
from imperfed.flower.processes.keys import make_keys

ROOT = Path(__file__).resolve().parents[1]
SITES = ("north", "south", "west")
ROUNDS = 6
LONGEST = 900.0  # seconds for all of it
SETTINGS = ["--rounds", ROUNDS, "--model", "benchmarks.drill:network", "--set", "local.steps=40", "--set", "batch=16"]
JOIN_AS_ROGUE = (
    "import imperfed.flower.site.joining as j; j.APP = 'benchmarks.rogue:site'; "
    "from imperfed.cli.app import main; main()"
)


def network(shape, classes):
    """Build a network that is not batched over sites in one process, so that all runs can be compared bit for bit."""
    from torch import nn

    from imperfed.core.network import Network

    return Network(nn.Sequential(nn.Linear(shape[0], 16), nn.LayerNorm(16), nn.Tanh()), nn.Linear(16, classes))


def write_federation(folder: Path) -> None:
    draw, classes = np.random.default_rng(0), ["asthma", "flu", "none"]
    centres = draw.normal(size=(3, 8))
    for part, rows in (("sites", 200), ("test", 60)):
        (folder / part).mkdir(parents=True)
        for name in SITES:
            y = draw.integers(0, 3, rows)
            x, other = centres[y] + draw.normal(size=(rows, 8)), draw.integers(0, 3, rows) if part == "sites" else y
            lines = [
                ",".join([*(f"{v:.3f}" for v in values), "|".join(classes[c] for c in sorted({a, b}))])
                for values, a, b in zip(x, y, other, strict=True)
            ]
            (folder / part / f"{name}.csv").write_text("\n".join(["a,b,c,d,e,f,g,h,diagnosis", *lines]) + "\n")
    (folder / "federation.toml").write_text(
        'name = "clinics"\nsites = "sites/*.csv"\ntest = "test/*.csv"\n[inputs]\nnumeric = ["a", "b", "c", "d", "e", '
        f'"f", "g", "h"]\n[labels]\nkind = "candidates"\ncolumn = "diagnosis"\nclasses = {json.dumps(classes)}\n'
    )


class Actor:
    """An imperfed command in its own process, with its output in a file, that can be killed at a chosen moment."""

    all: ClassVar[list[Actor]] = []

    def __init__(self, home: Path, name: str, *words: object, rogue: bool = False) -> None:
        Actor.all.append(self)
        self.out, self.mark = home / f"{name}.out", f"DRILL={home}/{name}/{time.monotonic_ns()}"
        start = ["-c", JOIN_AS_ROGUE] if rogue else ["-m", "imperfed"]
        key, value = self.mark.split("=")
        with self.out.open("ab") as out:
            self.popen = subprocess.Popen(
                [sys.executable, *start, *map(str, words)], stdout=out, stderr=out, env=os.environ | {key: value}
            )

    def pids(self) -> list[int]:
        """Return the process and all its descendants."""
        return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if self.mark in read(path)]

    def at_work(self) -> bool:
        """Return whether a task is running: a process forked from the task executor."""
        executors = [
            pid for pid in self.pids() if "imperfed.flower.processes.executor" in read(Path(f"/proc/{pid}/cmdline"))
        ]
        return len(executors) > 1

    def kill(self) -> int:
        """Kill everything it has started at once (kill -9), as a power cut would, just after a task has begun."""
        for state in (False, True):
            while self.at_work() is not state:
                time.sleep(0.02)
        return self.kill_now()

    def kill_now(self) -> int:
        pids = self.pids()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # a task may just have ended
                os.kill(pid, signal.SIGKILL)
        self.popen.wait()
        return len(pids)

    def end(self) -> int:
        self.popen.terminate()
        return self.popen.wait(30)


def read(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def until(file: Path, pattern: str, seconds: float = 200.0) -> str:
    deadline = time.monotonic() + seconds
    while not (found := re.search(pattern, read(file), re.MULTILINE)):
        if time.monotonic() > deadline:
            raise SystemExit(f"no {pattern!r} within {seconds:.0f} s in {file}:\n{read(file)[-3000:]}")
        time.sleep(0.1)
    return found[0]


class Drill:
    def __init__(self, home: Path) -> None:
        self.home, self.data, self.keys, self.rows = home, home / "data", home / "keys", []
        write_federation(self.data)
        self.policy = home / "policy.toml"
        self.policy.write_text('modules = ["benchmarks.drill:network"]')
        make_keys(self.keys, SITES, ["localhost"], days=1)

    def serve(self, name: str, port: int, *more: object) -> Actor:
        where = ["--host", "localhost", "--port", port, "--keys", self.keys / "coordinator", "--out", self.home / name]
        return Actor(self.home, name, "serve", self.data / "federation.toml", "pfedpll", *SETTINGS, *where, *more)

    def join(self, run: str, site: str, port: int, keys: Path | None = None, rogue: bool = False) -> Actor:
        own = ["--data", self.data / "sites" / f"{site}.csv", "--test", self.data / "test" / f"{site}.csv"]
        own += ["--state", self.home / f"{run}-{site}", "--keys", keys or self.keys / f"site-{site}"]
        return Actor(
            self.home, f"{run}-{site}", "join", f"localhost:{port}", *own, "--policy", self.policy, rogue=rogue
        )

    def tell(self, fault: str, coordinator: str, site: str, rounds: object, state: str) -> None:
        self.rows.append((fault, coordinator, site, str(rounds), state))

    def alone(self) -> Path:
        """Do the same run in one process, undisturbed."""
        words = ["--data", self.data, "--set", "split.public=0", "--workers", 1, "--out", self.home / "alone"]
        command = [sys.executable, "-m", "imperfed", "run", "pfedpll", *SETTINGS, *words]
        subprocess.run([*map(str, command)], check=True, capture_output=True)
        return next((self.home / "alone").iterdir())

    def sites_fail(self) -> None:
        """Kill one site mid-round and restart it; let another answer nonsense; leave the third alone."""
        port = free_port()
        serving = self.serve("first", port)
        actors = {name: self.join("first", name, port, rogue=name == "south") for name in SITES}
        until(serving.out, r"^round 3/")
        killed = actors["north"].kill()
        began = time.monotonic()
        actors["north"] = self.join("first", "north", port)
        self.cut_a_request(port)
        code, log = serving.popen.wait(300), read(next((self.home / "first").iterdir()) / "log.txt")
        back = re.findall(r"^joined .*", read(actors["north"].out), re.MULTILINE)
        for actor in actors.values():
            actor.popen.wait(90)
        missed = re.findall(r"round (\d+): north failed: (.*)", log)
        own = len(list(self.home.glob("first-north/*/report.html"))) == 1
        why = f"round {missed[0][0]}: north failed: {missed[0][1]}" if missed else "every round has its answer"
        self.tell(
            f"kill -9 of a site ({killed} processes), restarted",
            f"{why}; the run ends with code {code}",
            f"{back[1] if len(back) > 1 else 'NOT BACK'} again; the run ended {time.monotonic() - began:.0f} s later",
            len(missed),
            "none" if own and "is not there" not in log else "LOST",
        )
        self.nonsense(log)
        gate = re.findall(r".*the sender disconnected.*", read(serving.out))
        self.tell(
            "a request cut in half at the gate",
            f"{gate[0] if gate else 'NOTHING'}; the run ends with code {code}",
            "the connection ends",
            len(re.findall(r"west failed", log)),  # the site that sent it
            "none" if code == 0 else "LOST",
        )

    def nonsense(self, log: str) -> None:
        """Return how the wrong answers of one site were handled."""
        kept = read(self.home / "first-south" / "log.txt")
        whole = list(self.home.glob("first-south/*/report.html")) and "is not there" not in log
        for fault, round in (("NaN in an answer", 2), ("an array cut short", 3)):
            said = re.findall(rf"round {round}: south failed: .*", log)
            own = re.search(rf"train round {round}: (received \d+ bytes, sent \d+)", kept)
            told = f"its log: {own[1] if own else 'NOTHING'}"
            self.tell(fault, said[0] if said else "NOTHING", told, len(said), "none" if whole else "LOST")

    def cut_a_request(self, port: int) -> None:
        """Send half a request through the gate, then nothing; the gate must keep serving."""
        import ssl

        context = ssl.create_default_context(cafile=str(self.keys / "site-west" / "ca.crt"))
        plain = socket.create_connection(("localhost", port))
        with context.wrap_socket(plain, server_hostname="localhost") as half:
            half.sendall(b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\nhalf")

    def coordinator_fails(self) -> None:
        """Kill the coordinator mid-round and resume it; the sites keep running."""
        port, reference = free_port(), self.alone()
        serving = self.serve("second", port)
        actors = [self.join("second", name, port) for name in SITES]
        until(serving.out, r"^round 3/")
        killed = serving.kill_now()  # its one task is the run itself
        [run] = (self.home / "second").iterdir()
        resumed = Actor(self.home, "resumed", "resume", run)
        code = resumed.popen.wait(300)
        for actor in actors:
            actor.popen.wait(90)
        went_on = re.search(r"resumed after round (\d+)", read(run / "log.txt"))
        models = [
            (load_file(reference / "models" / f"{s}.safetensors"), load_file(path / "models" / f"{s}.safetensors"))
            for s in SITES
            for path in self.home.glob(f"second-{s}/{run.name}")
            if (path / "report.html").exists()
        ]
        same = len(models) == len(SITES) and all((a[k] == b[k]).all() for a, b in models for k in a)
        self.tell(
            f"kill -9 of the coordinator ({killed} processes), `imperfed resume`",
            f"{went_on[0] if went_on else 'NOT RESUMED'}; ends with code {code}",
            f"{len(models)} of {len(SITES)} came back by themselves and ended with a report",
            f"{3 - int(went_on[1]) if went_on else '?'} (done again)",
            "none: all models equal those of an undisturbed run" if same else "LOST",
        )

    def strangers_fail(self) -> None:
        """Try an unregistered key, and expired certificates."""
        port = free_port()
        serving = self.serve("third", port, "--sites", "north,west")
        make_keys(self.home / "others", ["north"], ["localhost"], days=1)
        stranger = self.home / "others" / "site-north"
        shutil.copy(self.keys / "site-north" / "ca.crt", stranger)
        until(serving.out, "^serving")
        joining = self.join("third", "north", port, keys=stranger)
        code = joining.popen.wait(180)
        seen = [line for line in read(serving.out).splitlines() if "north has connected" in line]
        told = f"{seen or 'nothing'}; still {last(serving.out)}"
        self.tell("an unregistered key", told, f"{last(joining.out)} (code {code})", 0, "none")
        serving.end()
        make_keys(self.home / "old", SITES, ["localhost"], days=1e-5)
        time.sleep(2)
        site = self.join("fourth", "north", port, keys=self.home / "old" / "site-north")
        server = self.serve("fourth", port, "--keys", self.home / "old" / "coordinator")
        codes = server.popen.wait(60), site.popen.wait(60)
        words = [f"{last(actor.out)} (code {code})" for actor, code in zip((server, site), codes, strict=True)]
        self.tell("an expired certificate", *words, 0, "none")


def last(out: Path) -> str:
    return re.sub(r"\S*/drill[^/]*/", "", read(out).strip().splitlines()[-1])


def counted() -> dict[str, int]:
    """Return what the kernel counted in this namespace: packets over loopback, and attempts to reach anything else."""
    found = {f"packets over {line.split(':')[0].strip()}": int(line.split()[2]) for line in devices()}
    names, values = (line.split() for line in read(Path("/proc/net/snmp")).splitlines()[:2])
    found["attempts to reach another network"] = int(dict(zip(names, values, strict=True))["OutNoRoutes"])
    sixth = dict(line.split() for line in read(Path("/proc/net/snmp6")).splitlines())
    found["the same by IPv6"] = int(sixth.get("Ip6OutNoRoutes", 0))
    return found


def devices() -> list[str]:
    return read(Path("/proc/net/dev")).splitlines()[2:]


def main() -> None:
    if "--inside" not in sys.argv:
        inside = f"ip link set lo up && exec {sys.executable} -m benchmarks.drill --inside"
        raise SystemExit(subprocess.call(["unshare", "--map-root-user", "--net", "sh", "-c", inside]))
    signal.alarm(int(LONGEST))
    os.environ["PYTHONPATH"] = str(ROOT)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="drill-") as home:
        drill = Drill(Path(home))
        try:
            for faults in (drill.sites_fail, drill.coordinator_fails, drill.strangers_fail):
                faults()
                print(f"{faults.__doc__} Done after {time.monotonic() - began:.0f} s.", flush=True)
        finally:
            for actor in Actor.all:
                actor.kill_now()
        before = counted()
    table = Table("fault", "the coordinator sees", "the site sees", "rounds lost", "state lost", show_lines=True)
    for row in drill.rows:
        table.add_row(*row)
    Console(width=160, markup=False, highlight=False).print(table)
    print(f"{time.monotonic() - began:.0f} s, with {len(devices())} network device: {before}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect_ex(("192.0.2.1", 53))
    print(f"after one attempt on purpose: {counted()['attempts to reach another network']}")


if __name__ == "__main__":
    main()
