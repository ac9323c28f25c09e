"""Flower's long-running processes: start, watch and stop them, and leave none behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
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
from imperfed.core.foreign_text import printable

SECRET_BYTES = 32
STOPPING = 8.0  # seconds to wait after each signal
LOOPBACK = "127.0.0.1"
NEAR = ("localhost", LOOPBACK, "::1")
CUT_OFF = "IMPERFED_CUT_OFF"
"""The environment variable that tells a SuperNode which earlier session of its site was cut off."""
BEAT = "executor.beat"
"""The file in FLWR_HOME whose time says when the process that answers messages was last seen at work."""
HEARD = "coordinator.heard"
"""The file beside it whose time says when the coordinator last answered."""
TAKEN = "answer.taken"
"""The file beside it whose time says when the coordinator last took an answer of the site."""
LONGEST_REASON = 1000
"""The most characters of the reason for which a process ended."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
EXIT = re.compile(r"Exit Code: \d+\n(.*?)(?:\n\n|\Z)", re.DOTALL)  # how Flower reports why it ended


class Stopped(ImperfedError):
    """A command was asked to stop; the message says how to continue."""

    exit_code = 130


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's processes: no telemetry, update check or installation; files in one folder."""
    return dict(os.environ) | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "OMP_NUM_THREADS": "1",  # as in the simulation; it also keeps forking after torch is loaded safe
        "PYTHONUNBUFFERED": "1",
    }


def free_port() -> int:
    """Return a loopback port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def module(name: str, *words: str) -> list[str]:
    """Return the command that runs one of our modules with this interpreter."""
    return [sys.executable, "-m", f"imperfed.flower.processes.{name}", *words]


def task_secret(home: Path) -> Path:
    """Return a file with the secret without which Flower's process on loopback hands out no task to other users."""
    path = home / "task-secret"
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
    return path


@contextlib.contextmanager
def private_files(folder: Path | None = None) -> Iterator[None]:
    """Make a folder, and whatever this process and its children write meanwhile, accessible to its owner only."""
    before = os.umask(0o077)
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(PermissionError):  # it belongs to someone else, who decides about it
                folder.chmod(0o700)
        yield
    finally:
        os.umask(before)


@dataclass
class Child:
    """A process with its own session and log file, which can be stopped with everything it started."""

    name: str
    command: Sequence[str]
    home: Path
    speaks: bool = False  # whether its output goes to the user's terminal
    variables: Mapping[str, str] = field(default_factory=dict)  # further environment variables
    log: Path = field(init=False)
    began: int = field(default=0, init=False)  # where in the log its output starts
    popen: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.log = self.home / f"{self.name}.log"

    def start(self) -> Child:
        """Start it, or start it again."""
        self.home.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.began = log.tell()
            self.popen = subprocess.Popen(
                self.command,
                env=environment(self.home) | dict(self.variables),
                stdin=subprocess.DEVNULL,
                stdout=None if self.speaks else log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches only us, and the whole group can be stopped
            )
        return self

    @property
    def alive(self) -> bool:
        """Whether it is running."""
        return self.popen is not None and self.popen.poll() is None

    def stop(self) -> None:
        """Stop it and everything it has started: first by asking, then by force."""
        if self.popen is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, number)
            if self.gone(STOPPING):
                return

    def gone(self, timeout: float) -> bool:
        """Return whether its whole process group ends within `timeout` seconds."""
        assert self.popen is not None
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            self.popen.poll()
            try:
                os.killpg(self.popen.pid, 0)
            except ProcessLookupError:
                return True
            time.sleep(0.05)
        return False

    def said(self) -> str:
        """Return what it has logged since it was last started."""
        with self.log.open("rb") as log:
            log.seek(self.began)
            return COLOURS.sub("", log.read().decode(errors="replace"))

    def last_words(self) -> str:
        """Return why it ended, according to its log."""
        reasons = EXIT.findall(self.said())
        lines = (reasons[-1] if reasons else self.said()).strip().splitlines()
        return printable(" ".join(line.strip() for line in lines[-5:]), LONGEST_REASON)  # it may quote another machine


def wait_until(ready: Callable[[], bool], child: Child, seconds: float) -> None:
    """Wait for a child to be ready; if it ends first or takes too long, raise an error that says why."""
    deadline = time.monotonic() + seconds
    while not ready():
        if not child.alive:
            raise ImperfedError(f"{child.name} ended before it was ready: {child.last_words()} (see {child.log})")
        if time.monotonic() > deadline:
            raise ImperfedError(f"{child.name} was not ready within {seconds:.0f} s (see {child.log})")
        time.sleep(0.05)


def listening(port: int) -> bool:
    """Return whether a process listens on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


@contextlib.contextmanager
def orderly() -> Iterator[None]:
    """Make SIGTERM shut things down in order, as Ctrl-C does."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def alone(lock: Path, what: str, seconds: float = 0.0) -> Iterator[None]:
    """Hold a lock file, which the system releases however the process ends; wait for it at most `seconds`."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    with lock.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise UsageError(f"{what}: another process is already working on it") from None
                time.sleep(0.2)
        yield
