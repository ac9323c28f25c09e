"""Flower's long-running processes: started, watched, stopped, and none of them left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from imperfed.core.errors import ImperfedError, UsageError

STOPPING = 8.0  # seconds between asking and forcing
LOOPBACK = "127.0.0.1"
NEAR = ("localhost", LOOPBACK, "::1")
CUT_OFF = "IMPERFED_CUT_OFF"
"""The variable that tells a SuperNode which session before it was cut off."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
EXIT = re.compile(r"Exit Code: \d+\n(.*?)(?:\n\n|\Z)", re.DOTALL)  # how Flower says why


class Stopped(ImperfedError):
    """A verb was asked to stop; says how to go on."""

    exit_code = 130


def environment(home: Path) -> dict[str, str]:
    """Surroundings of Flower's processes: nothing is sent home, looked up or installed; files stay in one folder."""
    return dict(os.environ) | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "OMP_NUM_THREADS": "1",  # as in one process, and forks of torch stay safe
        "PYTHONUNBUFFERED": "1",
    }


def free_port() -> int:
    """A port of loopback that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def module(name: str, *words: str) -> list[str]:
    """The command that runs a module of ours by this interpreter."""
    return [sys.executable, "-m", f"imperfed.flower.processes.{name}", *words]


@dataclass
class Child:
    """A process with a session, a log file and an end of its own."""

    name: str
    command: Sequence[str]
    home: Path
    speaks: bool = False  # what it prints is for the user
    told: Mapping[str, str] = field(default_factory=dict)  # further variables of its environment
    log: Path = field(init=False)
    began: int = field(default=0, init=False)  # where in the log
    popen: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.log = self.home / f"{self.name}.log"

    def start(self) -> Child:
        """Start it, or start it anew."""
        self.home.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.began = log.tell()
            self.popen = subprocess.Popen(
                self.command,
                env=environment(self.home) | dict(self.told),
                stdin=subprocess.DEVNULL,
                stdout=None if self.speaks else log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches us alone, and a whole group can be ended
            )
        return self

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.popen is not None and self.popen.poll() is None

    def stop(self) -> None:
        """End it and all it has started: first by asking, then by force."""
        if self.popen is None:
            return
        for number, patience in ((signal.SIGTERM, STOPPING), (signal.SIGKILL, STOPPING)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, number)
            if self.gone(patience):
                return

    def gone(self, patience: float) -> bool:
        """Whether its whole group has ended within some seconds."""
        assert self.popen is not None
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            self.popen.poll()
            try:
                os.killpg(self.popen.pid, 0)
            except ProcessLookupError:
                return True
            time.sleep(0.05)
        return False

    def said(self) -> str:
        """What it has logged since it was started."""
        with self.log.open("rb") as log:
            log.seek(self.began)
            return COLOURS.sub("", log.read().decode(errors="replace"))

    def last_words(self) -> str:
        """Why it ended, as its log has it."""
        told = EXIT.findall(self.said())
        lines = (told[-1] if told else self.said()).strip().splitlines()
        return " ".join(line.strip() for line in lines[-5:])


def wait_until(ready: Callable[[], bool], child: Child, seconds: float) -> None:
    """Wait for a child to be ready; if it ends first or takes too long, say so with its last words."""
    deadline = time.monotonic() + seconds
    while not ready():
        if not child.alive:
            raise ImperfedError(f"{child.name} ended before it was ready: {child.last_words()} (see {child.log})")
        if time.monotonic() > deadline:
            raise ImperfedError(f"{child.name} was not ready within {seconds:.0f} s (see {child.log})")
        time.sleep(0.05)


def listening(port: int) -> bool:
    """Whether somebody listens on a port of loopback."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


@contextlib.contextmanager
def orderly() -> Iterator[None]:
    """Let a request to end (SIGTERM) undo things in order, as Ctrl-C does."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def alone(lock: Path, what: str, seconds: float = 0.0) -> Iterator[None]:
    """Hold a lock file, which a process loses when it ends in whatever way; wait for it some seconds at most."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    with lock.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise UsageError(f"{what}: another process works on it already") from None
                time.sleep(0.2)
        yield
