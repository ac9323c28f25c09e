"""`imperfed join`: one site, from its file to its own report, and again from its own state if killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from imperfed.core.errors import DataError, UsageError
from imperfed.data.files.rules import name_trouble
from imperfed.flower.processes.child import Stopped, alone, orderly
from imperfed.flower.processes.keys import SiteKeys
from imperfed.flower.processes.supernode import CoordinatorAddress, SuperNode

APP = "imperfed.flower.apps:site"
LINGER = 60.0  # seconds for the other sites' last answers


@dataclass(frozen=True)
class Joining:
    """Who joins whom, with which rows, and where the site keeps what is its own."""

    coordinator: str
    data: Path
    state: Path
    keys: Path | None = None
    name: str = ""
    test: Path | None = None
    insecure: bool = False

    def way(self) -> CoordinatorAddress:
        """The way to the coordinator."""
        host, colon, port = self.coordinator.rpartition(":")
        if not colon or not host or not port.isdecimal():
            raise UsageError(f"the coordinator is written as HOST:PORT; got {self.coordinator!r}")
        keys = SiteKeys.read(self.keys) if self.keys else None
        return CoordinatorAddress(host.strip("[]"), int(port), keys, self.insecure)

    def site(self) -> dict[str, str]:
        """What the site's own process is told."""
        for path in (self.data, *([self.test] if self.test else [])):
            if not path.exists():
                raise DataError(f"{path}: there is no such file")
        folder = self.keys.resolve().name if self.keys else ""
        told = {
            "name": self.name or folder.removeprefix("site-") or self.data.stem,
            "data": str(self.data.resolve()),
            "state": str(self.state.resolve()),
            "test": str(self.test.resolve()) if self.test else "",
            "secret": str((self.keys / "secret").resolve()) if self.keys else "",
        }
        if trouble := name_trouble(told["name"]):
            raise UsageError(f"the site's name would be {trouble}; give another with --name")
        return told


class Tail:
    """New lines of a growing file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at = path.stat().st_size if path.exists() else 0

    def lines(self) -> list[str]:
        """Those that came since the last look."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self.at)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self.at += len(whole)
        return whole.decode(errors="replace").splitlines()


class Ending:
    """Whether a run has ended here: the site's report is written, its last answer has gone out and was fetched."""

    def __init__(self, state: Path, way: CoordinatorAddress) -> None:
        self.state, self.way, self.began = state, way, time.time()
        self.report: Path | None = None
        self.patience = 0.0

    def here(self) -> bool:
        """Look for it. A coordinator that has all answers leaves; an answer counts only while its site is there."""
        if self.report is None:
            new = (path for path in self.state.glob("*/report.html") if path.stat().st_mtime >= self.began)
            self.report, self.patience = next(new, None), time.monotonic() + LINGER
            return False
        return time.monotonic() > self.patience or self.way.knock() != ""


def join(joining: Joining, tell: Callable[[str], None]) -> None:
    """Answer the coordinator until its run has ended; every message is told as it leaves."""
    way, site = joining.way(), joining.site()
    log, ending = Tail(joining.state / "log.txt"), Ending(joining.state, way)

    def ended() -> bool:
        for line in log.lines():
            tell(line)
        return ending.here()

    try:
        with (
            alone(joining.state / "lock", str(joining.state)),
            orderly(),
            SuperNode(way, joining.state / "flower", site, APP, tell) as membership,
        ):
            membership.watch(ended)
    except KeyboardInterrupt:
        raise Stopped(f"left {way.address}; the same command comes back, with all that {site['name']} knows") from None
    tell(f"the run has ended; {site['name']}'s own report, model and labels: {ending.report}")
