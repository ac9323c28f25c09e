"""Commands of imperfed in processes of their own, which can be killed at a chosen moment."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

PATIENCE = 600.0  # seconds for whatever must happen next; on an idle machine it takes a tenth of that
ROGUE = "benchmarks.drill.rogue:site"
ROOT = Path(__file__).parents[2]
SITE_NODE = "imperfed.flower.processes.site_node"
"""A site's node, the process that answers for it, and the fork of this one that works on a message."""


def join_as(app: str) -> str:
    """Return a program that is `imperfed join`, but answers with another application."""
    return f"import imperfed.flower.site.joining as j; j.APP = '{app}'; from imperfed.cli.app import main; main()"


class Actor:
    """A command in its own process, with its output in a file."""

    all: ClassVar[list[Actor]] = []

    def __init__(
        self,
        home: Path,
        name: str,
        *words: object,
        start: Sequence[str] = ("-m", "imperfed"),
        env: Mapping[str, str] | None = None,
    ) -> None:
        Actor.all.append(self)
        self.out, self.mark = home / f"{name}.out", f"DRILL={home}/{name}/{time.monotonic_ns()}"
        key, value = self.mark.split("=")
        command = [sys.executable, *start, *map(str, words)]
        with self.out.open("ab") as out:
            self.popen = subprocess.Popen(
                command, stdout=out, stderr=out, env=os.environ | dict(env or {}) | {key: value}
            )

    def pids(self, program: str = "") -> list[int]:
        """Return the process and all its descendants, or those that run a program."""
        own = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if self.mark in read(path)]
        return [pid for pid in own if program in " ".join(command(pid))] if program else own

    def at_work(self) -> bool:
        """Return whether a site is working on a message, in a fork of the process that answers."""
        return len(self.pids(SITE_NODE)) > 2

    def kill(self) -> int:
        """Kill everything it has started at once (kill -9), as a power cut would, just after a task has begun."""
        for state in (False, True):
            while self.at_work() is not state:
                time.sleep(0.02)
        return self.kill_now()

    def kill_now(self) -> int:
        """Kill everything it has started at once, whatever it is doing."""
        pids = self.pids()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # a task may just have ended
                os.kill(pid, signal.SIGKILL)
        self.popen.wait()
        return len(pids)

    def ended(self) -> int:
        """Wait until it has ended by itself; return its exit code."""
        return self.popen.wait(PATIENCE)

    def end(self) -> int:
        """Ask it to end; return its exit code."""
        self.popen.terminate()
        return self.popen.wait(60)

    def until(self, pattern: str, seconds: float = PATIENCE) -> str:
        """Wait for a line of its output, and return what matched."""
        return until(self.out, pattern, seconds)

    def said(self, pattern: str) -> str:
        """Return the last part of its output that matches."""
        return shortened(([*re.findall(pattern, read(self.out), re.MULTILINE)] or ["NOTHING"])[-1])

    def last(self) -> str:
        """Return the last line of its output."""
        return shortened((read(self.out).strip().splitlines() or ["NOTHING"])[-1])

    def resident(self, program: str) -> int:
        """Return the memory of a process that it has started, in MB."""
        found = re.search(r"VmRSS:\s+(\d+) kB", read(Path(f"/proc/{self.pids(program)[0]}/status")))
        return int(found[1]) // 1024 if found else 0


def until(file: Path, pattern: str, seconds: float = PATIENCE) -> str:
    """Wait for a line of a file, and return what matched."""
    deadline = time.monotonic() + seconds
    while not (found := re.search(pattern, read(file), re.MULTILINE)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {pattern!r} within {seconds:.0f} s in {file}:\n{read(file)[-3000:]}")
        time.sleep(0.1)
    return found[0]


def read(path: Path) -> str:
    """Return a file's text; empty if it cannot be read (any more)."""
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def command(pid: int) -> list[str]:
    """Return the words of a process's command line."""
    return read(Path(f"/proc/{pid}/cmdline")).split("\0")


def shortened(line: str) -> str:
    """Return a line without the drill's own folder."""
    return re.sub(r"\S*/drill-[^/]*/", "", line)
