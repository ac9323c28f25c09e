"""The peak memory of a command and of all processes that it starts: anonymous memory, or mapped pages of files as well.

Pages of mapped files are in memory only as long as nothing else needs it, since they can be read from the file again;
anonymous memory, which is what arrays and objects are made of, cannot be dropped. Both are read from /proc.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PERIOD = 0.05
"""Seconds between two looks."""


@dataclass
class Peak:
    """The most memory seen, in bytes."""

    anonymous: int = 0
    with_files: int = 0
    seconds: float = 0.0


def measure(command: Sequence[str], **settings: object) -> tuple[Peak, str]:
    """Run a command and return its peak and what it printed; an error if it fails."""
    peak, began = Peak(), time.perf_counter()
    process = subprocess.Popen([*command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **settings)  # type: ignore[call-overload]
    ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(process.pid, peak, ended))
    watch.start()
    printed, _ = process.communicate()
    ended.set()
    watch.join()
    peak.seconds = time.perf_counter() - began
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with code {process.returncode}:\n{printed[-3000:]}")
    return peak, printed


def _watch(pid: int, peak: Peak, ended: threading.Event) -> None:
    while not ended.wait(PERIOD):
        seen = [resident(one) for one in family(pid)]
        peak.anonymous = max(peak.anonymous, sum(anonymous for anonymous, _ in seen))
        peak.with_files = max(peak.with_files, sum(both for _, both in seen))


def family(pid: int) -> list[int]:
    """Return a process and all that it started, as far as they are still there."""
    found = [pid]
    for parent in found:
        for path in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, path.read_text().split())
            except OSError:
                continue
    return found


def resident(pid: int) -> tuple[int, int]:
    """Return the bytes of anonymous memory of a process, and of all its memory; shared memory counts as anonymous.

    What it shares with other processes counts in equal parts for each of them.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0, 0
    size = {
        name: int(text.split()[0]) << 10 for name, _, text in (line.partition(":") for line in lines) if "kB" in text
    }
    anonymous = size.get("Pss_Anon", 0) + size.get("Pss_Shmem", 0)
    return anonymous, anonymous + size.get("Pss_File", 0)
