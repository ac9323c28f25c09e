"""A site's processes: SuperNode, the executor of its tasks, and what to do when one of them ends."""

from __future__ import annotations

import json
import re
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from imperfed.core.errors import DataError, ImperfedError, UsageError
from imperfed.flower.processes.child import CUT_OFF, LOOPBACK, NEAR, Child, free_port, module, task_secret
from imperfed.flower.processes.keys import SiteKeys, in_date

SITE = "IMPERFED_SITE"
"""The environment variable that describes the site to the executor, as JSON."""
NODE = re.compile(r"SuperNode ID: (\d+)")
KNOCK, HEARD = 10.0, 1.0  # seconds for a connection, and for a refusal to arrive
NOT_ACCEPTED = "it ends the connection: it is busy, or does not accept this site's certificate"
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
FORGOTTEN = 75.0  # seconds after which SuperLink has dropped a session that was cut off: 2 * 30 s and a margin


@dataclass(frozen=True)
class CoordinatorAddress:
    """The coordinator's address, and the keys to use there."""

    host: str
    port: int
    keys: SiteKeys | None
    insecure: bool = False

    def __post_init__(self) -> None:
        if self.keys is None and not self.insecure and self.host not in NEAR:
            raise UsageError(
                f"without keys anyone on the way to {self.host} can read and change what is sent: give --keys with "
                "the folder you were given, or --insecure"
            )

    @property
    def address(self) -> str:
        """Host and port as one string."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def knock(self) -> str:
        """Return why nothing answers now; empty if the coordinator does. Raise an error if another server does."""
        try:
            with socket.create_connection((self.host, self.port), timeout=KNOCK) as plain:
                if self.keys is not None:
                    with self.keys.tls().wrap_socket(plain, server_hostname=self.host) as tls:
                        return NOT_ACCEPTED if ends_at_once(tls) else ""
        except ssl.SSLCertVerificationError as error:
            raise DataError(
                f"the server at {self.address} cannot prove that it is the coordinator: {error.verify_message}; "
                "nothing was sent"
            ) from error
        except ssl.SSLError as error:
            raise ImperfedError(f"{self.address} does not speak TLS ({error.reason}); nothing was sent") from error
        except OSError as error:
            return error.strerror or str(error)
        return ""


def ends_at_once(tls: ssl.SSLSocket) -> bool:
    """Return whether the other side ends a connection; in TLS 1.3 it checks a certificate after the client is done."""
    tls.settimeout(HEARD)
    try:
        return tls.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:  # of TLS as well
        return True


class SuperNode:
    """The processes, as a context manager; `watch` keeps them running."""

    def __init__(
        self, way: CoordinatorAddress, home: Path, site: dict[str, str], app: str, tell: Callable[[str], None] = print
    ) -> None:
        self.way, self.home, self.name, self.tell = way, home, site["name"], tell
        port = free_port()
        secret = task_secret(home)
        words = ["--superlink", way.address, "--isolation", "process", "--host", LOOPBACK, "--port", str(port)]
        words += ["--superexec-auth-secret-file", str(secret)]
        if way.keys is None:
            words += ["--insecure"]
        else:
            words += ["--root-certificates", str(way.keys.ca), "--auth-supernode-private-key", str(way.keys.key)]
        self.node = Child("supernode", module("parent_watch", "flower-supernode", *words), home)
        executor = module("executor", "clientapp", f"{LOOPBACK}:{port}", app, "--secret", str(secret))
        self.executor = Child("executor", executor, home, variables={SITE: json.dumps(site)})
        self.pause = FIRST_PAUSE
        self.joined = False
        self.refused = 0.0  # when the refusals began; 0: not refused

    def __enter__(self) -> SuperNode:
        self.executor.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.node.stop()  # first, so that it can sign off
        self.executor.stop()
        if self.joined:
            self._remembered.unlink(missing_ok=True)

    @property
    def _remembered(self) -> Path:
        return self.home / "session"

    def watch(self, ended: Callable[[], bool]) -> None:
        """Stay connected until `ended`: reconnect whenever the connection or a process is lost."""
        while not ended():
            self._come_in(ended)
            began = time.monotonic()
            while self.node.alive and not ended():
                self._look()
                time.sleep(0.2)
            if ended():
                return
            if time.monotonic() - began > LONGEST_PAUSE:
                self.pause = FIRST_PAUSE
            self._explain()
            time.sleep(self.pause)
            self.pause = min(2 * self.pause, LONGEST_PAUSE if not self.refused else FORGOTTEN / 5)

    def _come_in(self, ended: Callable[[], bool]) -> None:
        """Wait until the coordinator answers, and start SuperNode, with the id of a session that was cut off."""
        before, began = "", time.monotonic()
        while (why := self.way.knock()) and not ended():
            if why != NOT_ACCEPTED:
                began = time.monotonic()
            if time.monotonic() - began > FORGOTTEN:
                raise ImperfedError(
                    f"{self.way.address} does not accept this site's certificate: the coordinator must serve with the "
                    "keys that were made together with it"
                )
            if why != before:
                self.tell(f"no answer at {self.way.address} yet ({why}); trying again until there is one")
            before = why
            time.sleep(FIRST_PAUSE)
        known = self.way.keys is not None and self._remembered.exists()
        self.node.variables = {CUT_OFF: self._remembered.read_text()} if known else {}
        self.joined = False
        self.node.start()

    def _look(self) -> None:
        """Note that the site was admitted, keep its executor running, and check that the keys have not expired."""
        if not self.joined and (match := NODE.search(self.node.said())):
            self.joined = True
            self._remembered.write_text(match[1])
            self.tell(f"joined {self.way.address} as {self.name}")
        if not self.executor.alive:
            self.tell(f"the executor ended ({self.executor.last_words()}); starting it again")
            self.executor.start()
            time.sleep(FIRST_PAUSE)
        if self.way.keys is not None:
            in_date(self.way.keys.ca)

    def _explain(self) -> None:
        """Report why SuperNode ended. A refusal has two possible causes, one of which passes after a while."""
        reason = self.node.last_words()
        if self.joined or "Failed to activate" not in reason:
            self.refused = 0.0
            self.tell(f"the connection ended: {reason or 'no reason given'}; trying again in {self.pause:.0f} s")
            return
        self.refused = self.refused or time.monotonic()
        if time.monotonic() - self.refused > FORGOTTEN:
            raise ImperfedError(
                f"{self.way.address} does not know this site's key: the coordinator must serve with the keys that were "
                "made together with it"
            )
        self.tell(
            f"not admitted: the key is unknown at {self.way.address}, or an earlier session of this site that was "
            f"cut off has not expired there yet, which takes a minute; trying again in {self.pause:.0f} s"
        )
