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
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file

from benchmarks.drill_links import endings_fail, links_fail
from benchmarks.rogue import FAULTS, FIGURES
from imperfed.flower.processes.adapter import (
    AcquireTaskRequest,
    RuntimeHttpClient,
    RuntimeVersionHttpInterceptor,
    TaskType,
)
from imperfed.flower.processes.child import free_port
from imperfed.flower.processes.keys import SiteKeys, make_keys

ROOT = Path(__file__).resolve().parents[1]
SITES = ("north", "south", "west")
ROUNDS = 8
LONGEST = 2400.0  # seconds for all of it
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

    def __init__(self, home: Path, name: str, *words: object, start: Sequence[str] = ("-m", "imperfed")) -> None:
        Actor.all.append(self)
        self.out, self.mark = home / f"{name}.out", f"DRILL={home}/{name}/{time.monotonic_ns()}"
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
        start = ("-c", JOIN_AS_ROGUE) if rogue else ("-m", "imperfed")
        return Actor(
            self.home, f"{run}-{site}", "join", f"localhost:{port}", *own, "--policy", self.policy, start=start
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
        until(serving.out, r"^round 2/")
        self.idle_strangers(port)
        self.large_bodies(port, serving)
        self.local_user(actors["west"])
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
        self.lies(log, read(next((self.home / "first").iterdir()) / "messages.txt"))
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
        for when, (fault, _) in FAULTS.items():
            said = re.findall(rf"{when}: south failed: .*", log)
            own = re.search(rf"train {when}: (received \d+ bytes, sent \d+)", kept)
            told = f"its log: {own[1] if own else 'NOTHING'}"
            self.tell(fault, said[0] if said else "NOTHING", told, len(said), "none" if whole else "LOST")

    def lies(self, log: str, messages: str) -> None:
        """Report how rows and figures that cannot be were handled."""
        when, fault = FIGURES
        counted_as = re.findall(r"south has \d+ of .*", log)
        self.tell("10^12 rows claimed at hello", counted_as[0] if counted_as else "NOTHING", "its log", 0, "none")
        refused = re.findall(r"south: its metrics were refused: .*", messages)
        self.tell(f"{fault} ({when})", refused[0] if refused else "NOTHING", "its log", 0, "none")

    def idle_strangers(self, port: int) -> None:
        """Open 1,050 connections and leave them idle; the rounds must go on."""
        idle = []
        for _ in range(1050):
            with contextlib.suppress(OSError):
                idle.append(socket.create_connection(("localhost", port), timeout=5))
        self.idle = idle  # closed with the process
        self.tell(
            "1,050 idle connections of a stranger, kept open", "the rounds go on", f"{len(idle)} opened", 0, "none"
        )

    def large_bodies(self, port: int, serving: Actor) -> None:
        """Send 30 bodies of 59 MB without a certificate; SuperLink must not grow."""
        context = ssl.create_default_context(cafile=str(self.keys / "site-west" / "ca.crt"))
        before, sent = resident(serving, "flower-superlink"), 0
        head = f"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: {59 * 10**6}\r\n\r\n".encode()
        for _ in range(30):
            with contextlib.suppress(OSError):
                plain = socket.create_connection(("localhost", port), timeout=5)
                with context.wrap_socket(plain, server_hostname="localhost") as tls:
                    tls.sendall(head)
                    for _ in range(59):
                        tls.sendall(bytes(10**6))
                        sent += 10**6
        after = resident(serving, "flower-superlink")
        told = f"SuperLink: {before} MB before, {after} MB after"
        self.tell(
            "30 bodies of 59 MB without a certificate", told, f"refused after {sent // 10**6} MB in all", 0, "none"
        )

    def local_user(self, site: Actor) -> None:
        """Ask a site's SuperNode for a task, and look for files that others may read."""
        words = next(w for pid in site.pids() if "flower-supernode" in (w := command(pid)))
        port = words[words.index("--port") + 1]
        version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
        try:
            with RuntimeHttpClient.from_server_address(f"127.0.0.1:{port}", True, None, [version]) as client:
                client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
            answer = "A TASK"
        except httpx.HTTPStatusError as error:
            answer = f"refused with {error.response.status_code}"
        state = self.home / "first-west"
        readable = [p for p in (state, *state.rglob("*")) if p.exists() and p.stat().st_mode & 0o077]
        told = f"{answer}; {len(readable)} files and folders open to others"
        self.tell("a local user asks SuperNode for a task", "nothing", told, 0, "none")

    def cut_a_request(self, port: int) -> None:
        """Send half a request through the gate, then nothing; the gate must keep serving."""
        context = SiteKeys.read(self.keys / "site-west").tls()
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

    def disks_fail(self) -> None:
        """Stop a run; flip a bit in the checkpoint and in a site's state, change another site's file; go on."""
        port = free_port()
        serving = self.serve("disks", port)
        actors = {name: self.join("disks", name, port) for name in SITES}
        until(serving.out, r"^round 3/")
        for actor in (serving, *actors.values()):
            actor.kill_now()
        [run] = (self.home / "disks").iterdir()
        flip(run / "checkpoints" / "last.safetensors")
        for state in sorted((self.home / "disks-south").glob("*/state-*.safetensors"))[1:]:
            flip(state)
        rows = self.data / "sites" / "west.csv"
        whole = rows.read_text()
        rows.write_text("\n".join(whole.splitlines()[:-7]) + "\n")
        resumed = Actor(self.home, "disks-resumed", "resume", run)
        actors = {name: self.join("disks", name, port) for name in SITES}
        refused = until(resumed.out, r".*west began this run with.*")
        actors["west"].end()
        rows.write_text(whole)
        actors["west"] = self.join("disks", "west", port)
        code = resumed.popen.wait(300)
        for actor in actors.values():
            actor.popen.wait(90)
        log, own = read(run / "log.txt"), read(self.home / "disks-south" / "log.txt")
        back = re.findall(r".*goes back to the checkpoint before it", log)
        state = re.findall(r".*going on from the state after round \d+", own)
        self.tell("one bit flipped in the checkpoint", short(back), f"ends with code {code}", "1 (done again)", "none")
        self.tell("one bit flipped in a site's state", "nothing", short(state), 0, "that of one round at one site")
        self.tell("seven rows fewer in a site's file", short([refused]), "back with its file as it was", 0, "none")

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


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-9] ^= 16
    path.write_bytes(content)


def short(lines: list[str]) -> str:
    return re.sub(r"\S*/drill[^/]*/", "", lines[0]) if lines else "NOTHING"


def command(pid: int) -> list[str]:
    return read(Path(f"/proc/{pid}/cmdline")).split("\0")


def resident(actor: Actor, name: str) -> int:
    """Return the memory of a process that an actor has started, in MB."""
    pid = next(pid for pid in actor.pids() if name in command(pid))
    found = re.search(r"VmRSS:\s+(\d+) kB", read(Path(f"/proc/{pid}/status")))
    return int(found[1]) // 1024 if found else 0


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
            for faults in (drill.sites_fail, drill.coordinator_fails, drill.disks_fail, drill.strangers_fail):
                faults()
                print(f"{faults.__doc__} Done after {time.monotonic() - began:.0f} s.", flush=True)
            for more in (links_fail, endings_fail):
                more(drill)
                print(f"{more.__doc__} Done after {time.monotonic() - began:.0f} s.", flush=True)
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
