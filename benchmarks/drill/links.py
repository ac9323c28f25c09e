"""Lines on which nothing arrives, on which a bit is flipped or which are slow, and a process that hangs."""

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

from benchmarks.drill.actors import SITE_NODE, Actor, read
from benchmarks.drill.consortium import SITES, Consortium, failures
from imperfed.flower.processes.child import free_port

GONE = 45.0
"""Seconds in which nothing arrives."""
LAG = 3.0
"""Seconds that every packet of the slow line takes, in each direction: 6 s for a call that Flower gives 5 s."""
SLOW = 90.0
"""Seconds for which the line is slow."""


class Forwarder:
    """A port whose connections end at another one. What is sent can vanish, be damaged once, stall or take its time."""

    def __init__(self, target: int) -> None:
        self.target, self.gone, self.damage, self.lag = target, False, False, 0.0
        self.rate = 0.0
        """Bytes per second of all connections together; 0: as many as they want."""
        self.turn, self.carried = threading.Lock(), 0
        self.open, self.stalled, self.stalls = 0, 0, 0
        """The connections that are open, those that were stalled, and how often all of them were."""
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self.server.accept()
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        lost, began = False, self.stalls
        self.open += 1
        with contextlib.suppress(OSError), near, socket.create_connection(("127.0.0.1", self.target)) as far:
            while self.stalls == began:
                for source in select.select([near, far], [], [], 1.0)[0]:
                    if not (data := source.recv(65536)):
                        return
                    lost = lost or self.gone  # TLS cannot go on after a gap
                    time.sleep(self.lag)
                    self._throttle(len(data))
                    if not lost:
                        (far if source is near else near).sendall(self._damaged(data))
                if lost and not self.gone:
                    return
            while True:  # open, and nothing is carried any more
                time.sleep(1.0)

    def stall(self) -> None:
        """Carry nothing any more on the connections there are."""
        self.stalled, self.open, self.stalls = self.open, 0, self.stalls + 1

    def _throttle(self, count: int) -> None:
        """Wait as long as so many bytes take on this line, one connection after the other."""
        self.carried += count
        if self.rate:
            with self.turn:
                time.sleep(count / self.rate)

    def _damaged(self, data: bytes) -> bytes:
        if not self.damage or len(data) < 100:
            return data
        self.damage = False
        return data[:-9] + bytes([data[-9] ^ 16]) + data[-8:]


def links_fail(drill: Consortium) -> None:
    """Let nothing arrive at one site for 45 s; damage and slow down another's line; stop what answers for the third."""
    port = free_port()
    serving = drill.serve("links", port)
    lines = {name: Forwarder(port) for name in ("north", "west")}
    actors = {n: drill.join("links", n, lines[n].port if n in lines else port) for n in SITES}
    serving.until(r"^round 1/")
    lines["north"].gone = True
    time.sleep(GONE)
    lines["north"].gone = False
    serving.until(r"^round 3/")
    lines["west"].damage = True
    stopped = stop_answering(actors["south"])
    told = actors["south"].until(r"^.* has not been seen at work.*")
    serving.until(r"^round 5/")
    lines["west"].lag = LAG
    time.sleep(SLOW)
    lines["west"].lag = 0.0
    code = serving.ended()
    for actor in actors.values():
        actor.ended()
    messages = read(drill.folder("links") / "messages.txt")
    for site, fault, before, seen in (
        (
            "north",
            f"{GONE:.0f} s in which nothing arrives at a site",
            "the site was idle for up to an hour",
            actors["north"].said("no answer at .*"),
        ),
        (
            "south",
            f"the process that answers for a site hangs (SIGSTOP of {stopped} processes)",
            "an hour (`--patience`) in every round",
            told,
        ),
        (
            "west",
            f"a bit flipped on a site's line; later {SLOW:.0f} s in which every packet takes {LAG:g} s",
            "SuperNode never came back; uploads began again for ever",
            f"damage {'not sent' if lines['west'].damage else 'sent'}; its last line: “{actors['west'].last()}”",
        ),
    ):
        again = re.findall(rf"asking [^:]*{site}[^:]* again after .*", messages)
        lost, whole = len(failures(drill.folder("links"), site)), list(drill.home.glob(f"links-{site}/*/report.html"))
        told_first = again[0] if again else "nothing"
        drill.tell(fault, before, f"{told_first}; code {code}", seen, lost, "none" if whole else "LOST")


def stop_answering(site: Actor) -> int:
    """Stop the process that answers for a site, and its fork if there is one; they are alive and do nothing."""
    nodes = site.pids(SITE_NODE)
    pids = [pid for pid in nodes if parent(pid) in nodes]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    return len(pids)


def parent(pid: int) -> int:
    """Return a process's parent; 0 if it has ended."""
    found = re.search(r"^PPid:\s+(\d+)", read(Path(f"/proc/{pid}/status")), re.MULTILINE)
    return int(found[1]) if found else 0
