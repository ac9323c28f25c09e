"""Faults of links, of processes that hang and of the end of a run, with real processes. For `drill.py`."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from imperfed.flower.processes.child import free_port

if TYPE_CHECKING:
    from benchmarks.drill import Actor, Drill

GONE = 45.0  # seconds in which nothing arrives
NAMES = ("north", "south", "west")


class Forwarder:
    """A port whose connections end at another one; while `gone`, whatever is sent vanishes."""

    def __init__(self, target: int) -> None:
        self.target, self.gone = target, False
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self.server.accept()
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        lost = False
        with contextlib.suppress(OSError), near, socket.create_connection(("127.0.0.1", self.target)) as far:
            while True:
                for source in select.select([near, far], [], [], 1.0)[0]:
                    if not (data := source.recv(65536)):
                        return
                    lost = lost or self.gone  # TLS cannot go on after a gap
                    if not lost:
                        (far if source is near else near).sendall(data)
                if lost and not self.gone:
                    return


def links_fail(drill: Drill) -> None:
    """Let nothing arrive at a site for 45 s, and stop another's executor."""
    from benchmarks.drill import read, until

    port = free_port()
    serving, forwarder = drill.serve("links", port), Forwarder(port)
    actors = {n: drill.join("links", n, forwarder.port if n == "north" else port) for n in NAMES}
    until(serving.out, r"^round 1/")
    forwarder.gone = True
    time.sleep(GONE)
    forwarder.gone = False
    until(serving.out, r"^round 3/", 300)
    stopped = stop_executor(actors["south"])
    told = until(actors["south"].out, r"^the executor has not been seen at work.*", 300)
    code = serving.popen.wait(400)
    for actor in actors.values():
        actor.popen.wait(90)
    log, messages = (read(next((drill.home / "links").iterdir()) / name) for name in ("log.txt", "messages.txt"))
    for site, fault, seen in (
        ("north", f"{GONE:.0f} s in which nothing arrives at a site", last_of("no answer at .*", actors["north"])),
        ("south", f"an executor that hangs (SIGSTOP of {stopped} processes)", told),
    ):
        again = re.findall(rf"asking [^:]*{site}[^:]* again after .*", messages)
        lost = len(re.findall(rf"{site} failed", log))
        whole = list(drill.home.glob(f"links-{site}/*/report.html"))
        drill.tell(fault, f"{again[0] if again else 'nothing'}; code {code}", seen, lost, "none" if whole else "LOST")


def stop_executor(site: Actor) -> int:
    """Stop the processes that carry out a site's tasks; they are alive and do nothing."""
    from benchmarks.drill import read

    pids = [p for p in site.pids() if "imperfed.flower.processes.executor" in read(Path(f"/proc/{p}/cmdline"))]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    return len(pids)


def endings_fail(drill: Drill) -> None:
    """Kill the coordinator once its results are written, with a site away; resume it, and let the site join later."""
    from benchmarks.drill import Actor, read, until

    port = free_port()
    serving = drill.serve("ending", port)
    actors = {name: drill.join("ending", name, port) for name in NAMES}
    until(serving.out, r"^round 4/")
    actors["west"].kill_now()
    until(serving.out, r"^waiting for .*has yet to get its results", 300)
    serving.kill_now()
    [run] = (drill.home / "ending").iterdir()
    resumed = Actor(drill.home, "ending-resumed", "resume", run)
    until(resumed.out, r"^waiting for west, which has yet")
    late = drill.join("ending", "west", port)
    codes = resumed.popen.wait(200), late.popen.wait(90)
    reports = len(list(drill.home.glob(f"ending-*/{run.name}/report.html")))
    drill.tell(
        "the coordinator killed after its results, a site away; resumed, and joined later",
        f"{last_of('waiting for west.*', resumed)}; code {codes[0]}",
        f"code {codes[1]}; {reports} of {len(NAMES)} sites have their reports",
        len(re.findall("west failed", read(run / "log.txt"))),
        "none" if reports == len(NAMES) else "LOST",
    )


def last_of(pattern: str, actor: Actor) -> str:
    from benchmarks.drill import read

    return ([*re.findall(pattern, read(actor.out))] or ["NOTHING"])[-1]
