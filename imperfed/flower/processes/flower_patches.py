"""Flower's waits, cut short where it has no setting for them; each would be most of the time of a small round."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

from imperfed.flower.processes.adapter import home

LOOK = 0.5  # seconds
RETRY = {"initial_backoff": 0.1, "backoff_cap": 2.0}  # seconds


def look_often() -> None:
    """SuperNode sleeps 3 s after every look for messages that found none; `sleep` is all it uses of `time`."""
    supernode = home("start_client_internal")
    vars(supernode)["time"] = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, LOOK)))


def pull_soon() -> None:
    """A message comes in pieces, and one that is not there yet is asked for again after 1 s, then 2, 4, ..."""
    usual = home("inflatable_utils").pull_objects.__kwdefaults__
    assert usual is not None
    assert usual.keys() >= RETRY.keys()
    usual.update(RETRY)


class ImportWarmup:
    """What a forked process had to import, its parent imports too, so that the next one has it from the start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known = set(sys.modules)

    def write(self) -> None:
        """In the child, at its end."""
        new = "".join(f"{name}\n" for name in sys.modules if name not in self.known)
        with suppress(OSError), self.path.with_suffix(f".{os.getpid()}").open("w") as file:
            file.write(new)

    def learn(self, child: int) -> None:
        """In the parent, when the child has ended."""
        path = self.path.with_suffix(f".{child}")
        with suppress(OSError):
            for name in path.read_text().split():
                with suppress(Exception):  # names that stand for no module of their own
                    import_module(name)
            path.unlink()
        self.known = set(sys.modules)
