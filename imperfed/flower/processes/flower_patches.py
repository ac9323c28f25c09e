"""What Flower has no setting for: shorter waits, which would take most of the time of a small round, and certificates
that sites show."""

from __future__ import annotations

import os
import ssl
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from imperfed.flower.processes.adapter import ProtobufClient, home

LOOK = 0.5  # seconds
RETRY = {"initial_backoff": 0.1, "backoff_cap": 2.0}  # seconds


def look_often(tick: Callable[[], None] = lambda: None) -> None:
    """Let SuperNode sleep less than 3 s after every poll that finds no message; `sleep` is all it uses of `time`.

    `tick` is called each time.
    """

    def sleep(seconds: float) -> None:
        tick()
        time.sleep(min(seconds, LOOK))

    vars(home("start_client_internal"))["time"] = SimpleNamespace(sleep=sleep)


def pull_soon() -> None:
    """Ask sooner for a message's missing pieces, which Flower asks for again after 1 s, then 2, 4, ..."""
    defaults = home("inflatable_utils").pull_objects.__kwdefaults__
    assert defaults is not None
    assert defaults.keys() >= RETRY.keys()
    defaults.update(RETRY)


def show_certificate(tls: ssl.SSLContext) -> None:
    """Let SuperNode show the site's certificate to the coordinator; its clients can only be told whom to trust."""
    usual = ProtobufClient.__init__

    def init(self: object, base_url: str, **settings: Any) -> None:
        usual(self, base_url, **settings | ({"verify": tls} if base_url.startswith("https://") else {}))

    ProtobufClient.__init__ = init


class ImportWarmup:
    """Imports in the parent what a forked process had to import, so that the next fork has it from the start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known = set(sys.modules)

    def write(self) -> None:
        """Write what was imported; called in the child, at its end."""
        new = "".join(f"{name}\n" for name in sys.modules if name not in self.known)
        with suppress(OSError), self.path.with_suffix(f".{os.getpid()}").open("w") as file:
            file.write(new)

    def learn(self, child: int) -> None:
        """Import what a child imported; called in the parent, when the child has ended."""
        path = self.path.with_suffix(f".{child}")
        with suppress(OSError):
            for name in path.read_text().split():
                with suppress(Exception):  # names that cannot be imported alone
                    import_module(name)
            path.unlink()
        self.known = set(sys.modules)
