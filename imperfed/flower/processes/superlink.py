"""The coordinator's processes: SuperLink on loopback, the executor of its tasks, and the gate in front of them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import httpx

from imperfed.core.errors import DataError, ImperfedError, UsageError
from imperfed.flower.processes.bell import ANSWERED, SENT, Bell
from imperfed.flower.processes.child import LOOPBACK, NEAR, Child, free_port, module, task_secret, wait_until
from imperfed.flower.processes.control import Control, Settings
from imperfed.flower.processes.gate import Gate
from imperfed.flower.processes.gateway import GatewayServer
from imperfed.flower.processes.keys import CoordinatorKeys
from imperfed.flower.processes.own_calls import own_word
from imperfed.flower.processes.parent_watch import SECRET_FILE

START = 60.0  # seconds for SuperLink to answer
LOOK = 2.0  # seconds between two questions whether the run goes on
ATTEMPTS = 5
PAUSE = 5.0  # seconds before the processes are started again


@dataclass(frozen=True)
class ListenConfig:
    """Where the coordinator listens, and the keys by which it and the sites authenticate each other."""

    host: str
    port: int
    keys: CoordinatorKeys | None
    insecure: bool = False

    def __post_init__(self) -> None:
        if self.keys is None and not self.insecure and self.host not in NEAR:
            raise UsageError(
                f"without keys anyone on the way to {self.host} can read and change what is sent: give --keys "
                "(`imperfed keys` makes them), or --insecure"
            )

    def keys_of(self, sites: Sequence[str]) -> dict[str, bytes]:
        """Return the public keys of the sites, by name."""
        if self.keys is None:
            return {}
        if missing := [name for name in sites if name not in self.keys.sites]:
            raise DataError(f"{self.keys.path / 'sites'} has no key for {', '.join(missing)}")
        return {name: self.keys.sites[name] for name in sites}


class SuperLink:
    """The processes, as a context manager: started on entry, stopped on exit."""

    def __init__(self, home: Path, stand: ListenConfig, sites: Sequence[str], server: str) -> None:
        self.home, self.stand, self.server = home, stand, server
        self.admitted: dict[str, int] = {}
        self.port = free_port()
        self.near = f"{LOOPBACK}:{self.port}"
        self.ca = stand.keys.ca if stand.keys else None
        self.keys = stand.keys_of(sites)
        self.door: GatewayServer | None = None
        self.link = Child("superlink", module("parent_watch", "flower-superlink", *self._link_words()), home)
        words = [self.near, server, *(["--ca", str(self.ca)] if self.ca else [])]
        words += ["--secret", str(task_secret(home))]
        self.executor = Child("executor", module("executor", *words), home, speaks=True)

    def _link_words(self) -> list[str]:
        words = ["--host", LOOPBACK, "--port", str(self.port), "--isolation", "process"]
        words += [SECRET_FILE, str(task_secret(self.home))]
        if (keys := self.stand.keys) is None:
            return [*words, "--insecure"]
        words += ["--ssl-ca-certfile", str(keys.ca), "--ssl-certfile", str(keys.certificate)]
        return [*words, "--ssl-keyfile", str(keys.key), "--enable-supernode-auth"]

    def __enter__(self) -> SuperLink:
        os.environ["FLWR_HOME"] = str(self.home)
        keys = self.stand.keys
        scheme = "http" if keys is None else "https"
        bells = Bell(self.home / SENT), Bell(self.home / ANSWERED)
        word = own_word(task_secret(self.home))
        gate = Gate(f"{scheme}://{self.near}", self.ca, keys is None, *bells, word)
        try:
            self.door = GatewayServer(gate, self.stand.host, self.stand.port, keys)
            self.link.start()
            self.executor.start()  # it loads torch meanwhile, and retries until SuperLink answers
            self.control = Control(self.near, self.ca, task_secret(self.home))
            wait_until(self.control.ready, self.link, START)
            # Before the gate opens, so that no site is refused as unknown.
            self.admitted = {name: self.control.admit(name, key) for name, key in self.keys.items()}
            self.door.open()
        except BaseException:
            self.leave()
            raise
        return self

    def run(self, site: str, settings: Settings, ended: Callable[[], bool]) -> str:
        """Submit a run and wait until `ended`; return why it stopped if it stopped earlier, else an empty string."""
        number = self.control.submit(self.server, site, settings)
        next_look = 0.0
        while not ended():
            for child in (self.link, self.executor):
                if not child.alive:
                    return f"{child.name} ended: {child.last_words()}"
            time.sleep(0.1)
            if time.monotonic() < next_look:
                continue
            next_look = time.monotonic() + LOOK
            with contextlib.suppress(httpx.HTTPError):
                status = self.control.status(number)
                if status.ended and not ended():
                    return status.details or "the run ended without giving a reason"
        return ""

    def leave(self) -> None:
        """Stop all processes."""
        if self.door is not None:
            self.door.close()
        if hasattr(self, "control"):
            self.control.client.close()
        self.executor.stop()
        self.link.stop()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.leave()


def persist(make: Callable[[], SuperLink], once: Callable[[SuperLink], str], tell: Callable[[str], None]) -> None:
    """Run `once` with a SuperLink; if its processes fail, try again with a new one, a few times."""
    for attempt in range(1, ATTEMPTS + 1):
        with make() as link:
            trouble = once(link)
        if not trouble:
            return
        if attempt < ATTEMPTS:
            tell(f"{trouble}; starting again ({attempt} of {ATTEMPTS - 1})")
            time.sleep(PAUSE)
    raise ImperfedError(f"the coordinator's processes failed {ATTEMPTS} times ({trouble}); see the logs in {link.home}")
