"""A site's node as `imperfed join` sees it: kept running, and started again when it was cut off or hangs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from imperfed.core.errors import ImperfedError
from imperfed.core.foreign_text import printable
from imperfed.flower.processes.child import BEAT, CUT_OFF, HEARD, Child, module
from imperfed.flower.processes.contact import Contact
from imperfed.flower.processes.coordinator_address import CoordinatorAddress
from imperfed.flower.processes.keys import in_date

SITE = "IMPERFED_SITE"
"""The environment variable that describes the site to its application, as JSON."""
NODE = re.compile(r"SuperNode ID: (\d+)")
HUNG = 90.0  # seconds after which a process that was not seen at work is taken for dead
HANGS = "the process that answers messages"
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
QUIET = 30.0  # seconds without an answer of the coordinator after which it is asked whether it is there
LONGEST_LINE = 2000  # characters of what is told
LOOK, DATE = 0.5, 60.0  # seconds between two looks at the process, and at the dates of the keys
FORGOTTEN = 75.0  # seconds after which SuperLink has dropped a session that was cut off: 2 * 30 s and a margin


class SuperNode:
    """The node's processes, as a context manager; `watch` keeps them running."""

    def __init__(
        self, way: CoordinatorAddress, home: Path, site: dict[str, str], app: str, tell: Callable[[str], None] = print
    ) -> None:
        self.way, self.home, self.name = way, home, site["name"]
        self.tell: Callable[[str], None] = lambda line: tell(printable(line, LONGEST_LINE))  # it may quote a stranger
        words = ["--superlink", way.address, "--app", app]
        words += ["--insecure"] if way.keys is None else ["--keys", str(way.keys.path.resolve())]
        words += ["--keeps-fork"] if site.get("device", "cpu") != "cpu" else []
        self.described = {SITE: json.dumps(site)}
        self.node = Child("supernode", module("site_node", *words), home)
        self.contact = Contact(way, self.tell)
        self.pause = FIRST_PAUSE
        self.joined, self.joined_at = False, 0.0
        self.next_date = 0.0
        self.hung = False  # whether it was ended because it hung
        self.refused = 0.0  # when the refusals began; 0: not refused

    def __enter__(self) -> SuperNode:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.node.stop()
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
                if self.contact.lost is not None or self._age(HEARD) > QUIET:
                    self.contact.listen()
                time.sleep(LOOK)
            if ended():
                return
            if time.monotonic() - began > LONGEST_PAUSE:
                self.pause = FIRST_PAUSE
            self._explain()
            time.sleep(self.pause)
            self.pause = min(2 * self.pause, LONGEST_PAUSE if not self.refused else FORGOTTEN / 5)

    def _come_in(self, ended: Callable[[], bool]) -> None:
        """Wait until the coordinator answers, and start SuperNode, with the id of a session that was cut off."""
        while not self.contact.made() and not ended():
            time.sleep(FIRST_PAUSE)
        known = self.way.keys is not None and self._remembered.exists()
        self.node.variables = self.described | ({CUT_OFF: self._remembered.read_text()} if known else {})
        self.joined = False
        self.node.start()

    def _look(self) -> None:
        """Note that the site was admitted, end a process that hangs, and check that the keys have not expired."""
        if not self.joined and (match := NODE.search(self.node.said())):
            self.joined, self.joined_at = True, time.time()
            self._remembered.write_text(match[1])
            self.tell(f"joined {self.way.address} as {self.name}")
        if self.joined and self._unseen() > HUNG:
            self.tell(f"{HANGS} has not been seen at work for {self._unseen():.0f} s; starting it again")
            self.node.stop()
            self.hung = True
        if self.way.keys is not None and time.monotonic() > self.next_date:
            self.next_date = time.monotonic() + DATE
            in_date(self.way.keys.ca)

    def _unseen(self) -> float:
        """Return for how many seconds the process that answers messages has not shown that it is at work."""
        return min(self._age(BEAT), time.time() - self.joined_at)

    def _age(self, name: str) -> float:
        """Return how many seconds ago a file was touched."""
        path = self.home / name
        return time.time() - (path.stat().st_mtime if path.exists() else 0.0)

    def _explain(self) -> None:
        """Report why SuperNode ended. A refusal has several possible causes, one of which passes after a while."""
        if self.hung:
            self.hung = False
            return
        reason = self.node.last_words()
        if wrong := self.way.wrong_clock():
            self.refused = 0.0
            self.tell(f"{wrong}; trying again in {self.pause:.0f} s")
            return
        if self.joined or "Failed to activate" not in reason:
            self.refused = 0.0
            self.tell(f"the connection ended: {reason or 'no reason given'}; trying again in {self.pause:.0f} s")
            return
        self.refused = self.refused or time.monotonic()
        if time.monotonic() - self.refused > FORGOTTEN:
            raise ImperfedError(
                f"{self.way.address} does not admit this site: either its key is not one of those that the coordinator "
                "serves with, which were made together, or another `imperfed join` is connected with the same key; end "
                "that one first"
            )
        self.tell(
            f"not admitted: the key is unknown at {self.way.address}, or another `imperfed join` is connected with it, "
            "or an earlier session of this site that was cut off has not expired there yet, which takes a minute; "
            f"trying again in {self.pause:.0f} s"
        )
