"""NVIDIA's multi-process service (MPS), with which several processes compute on one GPU at the same moment.

Without it the GPU serves one process at a time. It is a daemon of the driver's. Here it runs in a folder of its own,
for the processes of one command alone, and ends with that command, however that ends: a guard waits for the end of a
pipe.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
FOLDER, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
CONNECTIONS, AT_ONCE = "CUDA_DEVICE_MAX_CONNECTIONS", 96
"""How many streams of a process compute at once, and of all processes that share a GPU by MPS.

On an H200 six processes with 32 each ended with "CUDA error: out of memory"; three with 32 and six with 12 ran.
"""
PATIENCE = 30.0
"""Seconds that the daemon has for whatever it is asked."""
CLIENT = """
import ctypes, sys
cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
code = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), int(sys.argv[1]))
code = code or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
sys.exit(f"CUDA error {code}" if code else 0)
"""
"""A program that begins to use a GPU, as torch would, and ends."""
GUARD = f'cat > /dev/null; echo quit | {CONTROL}; rm -rf "${FOLDER}"'
"""Ends the daemon when its own standard input ends."""


_notes: list[str] = []


class NotShared(Exception):
    """That the service cannot be used, and why."""


@dataclass
class SharedGpu:
    """How the processes of this command share a GPU: what their environment must hold, and what the log says."""

    note: str
    environment: dict[str, str] = field(default_factory=dict)
    at_once: bool = False
    """Whether the processes compute at the same time."""
    guard: subprocess.Popen[bytes] | None = None
    """In the process that started the service."""

    @classmethod
    def begin(cls, gpu: int) -> SharedGpu:
        """Start the service where it is there and does not run already; otherwise the processes take turns."""
        if shutil.which(CONTROL) is None:
            return cls(f"processes take turns on the GPU: there is no {CONTROL}")
        if said("get_server_list", dict(os.environ)) is not None:
            before = "processes compute on the GPU at the same time, by the MPS that was started before"
            return cls(before, at_once=True)
        folder = tempfile.mkdtemp(prefix="imperfed-mps-")
        own = {FOLDER: folder, LOGS: str(Path(folder, "log"))}
        environment = {**os.environ, **own}
        quiet = subprocess.DEVNULL
        # In a session of its own, or Ctrl-C in a terminal would end it before the processes that use it.
        guard = subprocess.Popen(
            ["sh", "-c", GUARD],
            stdin=subprocess.PIPE,
            stdout=quiet,
            stderr=quiet,
            env=environment,
            start_new_session=True,
        )
        shared = cls("processes compute on the GPU at the same time, by MPS", own, True, guard)
        try:
            start(environment, gpu)
        except NotShared as error:
            shared.end()
            return cls(f"processes take turns on the GPU: MPS did not start ({error})")
        except BaseException:
            shared.end()
            raise
        return shared

    def take_part(self) -> None:
        """Let this process compute as the others do; called before it uses the GPU."""
        os.environ.update(self.environment)
        _notes[:] = [self.note]

    def for_others(self, jobs: int) -> SharedGpu:
        """Return the same for the processes that compute, of which there are `jobs`."""
        most = int(os.environ.get(CONNECTIONS, "8"))  # 8: what CUDA does unless it is told
        part = {CONNECTIONS: str(max(1, min(most, AT_ONCE // jobs)))} if self.at_once else {}
        return SharedGpu(self.note, self.environment | part)

    def end(self) -> None:
        """Stop the service, if it was started here; all processes that use it have ended."""
        guard, self.guard, self.environment = self.guard, None, {}
        if guard is None:
            return
        assert guard.stdin is not None
        guard.stdin.close()
        try:
            guard.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()


def notes() -> list[str]:
    """Return how this process shares its GPU with others of the same command, as a sentence for the log."""
    return _notes


def start(environment: dict[str, str], gpu: int) -> None:
    """Start the daemon and let a program use the GPU by it; raise `NotShared` if that does not work."""
    Path(environment[LOGS]).mkdir()
    carried_out([CONTROL, "-d"], environment)
    carried_out([sys.executable, "-c", CLIENT, str(gpu)], environment)
    if not said("get_server_list", environment):
        raise NotShared("a program on the GPU went past it")


def said(command: str, environment: dict[str, str]) -> str | None:
    """Return the daemon's answer to a command; None where there is no daemon, or none that answers."""
    try:
        return carried_out([CONTROL], environment, f"{command}\n").strip()
    except NotShared:
        return None


def carried_out(words: list[str], environment: dict[str, str], told: str = "") -> str:
    """Return what a program prints; raise `NotShared` with its last line if it fails."""
    # Into files: a pipe would stay open in the daemon, and reading it would not end.
    with tempfile.TemporaryFile("w+") as out:
        try:
            done = subprocess.run(
                words,
                input=told,
                text=True,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                timeout=PATIENCE,
                start_new_session=True,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotShared(str(error)) from error
        out.seek(0)
        answer = out.read()
    if done.returncode:
        raise NotShared((answer.strip().splitlines() or [f"{Path(words[0]).name} failed"])[-1])
    return answer
