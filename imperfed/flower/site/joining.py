"""`imperfed join`: one site, from its file to its own report; if killed, resumed from its own state."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from imperfed.core.errors import DataError, RefusedBySiteError, SiteFailedError, UsageError, unknown
from imperfed.data.files.site_names import name_trouble
from imperfed.flower.processes.child import TAKEN, Stopped, alone, orderly, private_files
from imperfed.flower.processes.coordinator_address import CoordinatorAddress
from imperfed.flower.processes.keys import SiteKeys
from imperfed.flower.processes.supernode import SuperNode
from imperfed.flower.site.site_folder import AGREEMENT, ENDED, LOG, MOST_BYTES, NODE_HOME, TROUBLE

if TYPE_CHECKING:
    from imperfed.flower.site.agreement import Agreement

Result = TypeVar("Result")

APP = "imperfed.flower.apps:site"
DEVICES = ("cpu", "cuda")
REPORT, AUDIT_PAGE = "report.html", "audit.html"
"""The page that a run leaves at a site, and the one that an audit does."""
LINGER = 60.0  # seconds to wait for the other sites' last answers
UNTAKEN = 600.0  # seconds to wait for the coordinator to take this site's own
KNOCKS = 0.5, 8.0  # the first and the longest pause between two looks whether the coordinator is still there
GONE = 3  # looks in a row without an answer after which a coordinator that has not taken the last one is gone


@dataclass(frozen=True)
class Joining:
    """Which site joins which coordinator, with which rows, and where it keeps its state."""

    coordinator: str
    data: Path
    state: Path
    keys: Path | None = None
    name: str = ""
    test: Path | None = None
    insecure: bool = False
    device: str = "cpu"
    policy: Path | None = None
    accepts: bool = False
    """Whether runs within the policy are joined without a question."""

    def way(self) -> CoordinatorAddress:
        """Return the coordinator's address, and the keys to use there."""
        host, colon, port = self.coordinator.rpartition(":")
        if not colon or not host or not port.isdecimal():
            raise UsageError(f"the coordinator is written as HOST:PORT; got {self.coordinator!r}")
        keys = SiteKeys.read(self.keys) if self.keys else None
        return CoordinatorAddress(host.strip("[]"), int(port), keys, self.insecure)

    def site(self) -> dict[str, str]:
        """Return the description of the site that its own process gets."""
        # A policy's mistakes are for now, not for the first message.
        most_bytes = _in_a_fork(_most_bytes, self.policy) if self.policy else MOST_BYTES
        for path in (self.data, *([self.test] if self.test else [])):
            if not path.exists():
                raise DataError(f"{path}: no such file")
        folder = self.keys.resolve().name if self.keys else ""
        described = {
            "name": self.name or folder.removeprefix("site-") or self.data.stem,
            "data": str(self.data.resolve()),
            "state": str(self.state.resolve()),
            "test": str(self.test.resolve()) if self.test else "",
            "device": self.device,
            "policy": str(self.policy.resolve()) if self.policy else "",
            "most_bytes": str(most_bytes),
            "accepts": "yes" if self.accepts else "",
            "secret": str((self.keys / "secret").resolve()) if self.keys else "",
        }
        if self.device not in DEVICES:
            raise unknown("device", self.device, DEVICES)
        if trouble := name_trouble(described["name"]):
            raise UsageError(f"the site's name would be {trouble}; give another with --name")
        return described


def _in_a_fork(work: Callable[[Path], Result], path: Path) -> Result:
    """Do what needs torch or draws in a fork: this process keeps them out of its memory."""
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        return pool.submit(work, path).result()


def _most_bytes(policy: Path) -> int:
    from imperfed.flower.site.policy import SitePolicy

    return SitePolicy.read(policy).most_bytes


def _draw_report(folder: Path) -> None:
    from imperfed.report import write_report
    from imperfed.results.folder import RunFolder

    write_report(RunFolder(folder))


class Tail:
    """New lines of a growing file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at = path.stat().st_size if path.exists() else 0

    def lines(self) -> list[str]:
        """Return the lines added since the last call."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self.at)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self.at += len(whole)
        return whole.decode(errors="replace").splitlines()


class Ending:
    """Whether a run has ended at this site: its results are written and its last answer was sent and fetched."""

    def __init__(self, state: Path, way: CoordinatorAddress) -> None:
        self.state, self.way, self.began = state, way, time.time()
        self.ended = 0.0
        self.pause, self.next_knock, self.unheard = KNOCKS[0], 0.0, 0

    @property
    def page(self) -> Path | None:
        """The site's page about the run, or the audit, that has ended; that about a run has yet to be drawn."""
        ended = self._new(ENDED)
        return ended.with_name(REPORT) if ended else self._new(AUDIT_PAGE)

    @property
    def trouble(self) -> str:
        """What was wrong with the run when it had ended; empty if nothing was."""
        path = self._new(TROUBLE)
        return "" if path is None else path.read_text(encoding="utf-8")

    def _new(self, name: str) -> Path | None:
        new = (path for path in self.state.glob(f"*/{name}") if path.stat().st_mtime >= self.began)
        return next(new, None)

    def here(self) -> bool:
        """Return whether it has. A coordinator with all answers shuts down; until then a site must stay connected."""
        if not self.ended:
            if mark := self._new(ENDED) or self._new(AUDIT_PAGE) or self._new(TROUBLE):
                self.ended = mark.stat().st_mtime
            return False
        taken = self._taken()
        if time.time() > (taken + LINGER if taken else self.ended + UNTAKEN):
            return True
        return self._unheard() >= (1 if taken else GONE)

    def _taken(self) -> float:
        """Return when the coordinator took this site's last answer; 0: it has not."""
        path = self.state / NODE_HOME / TAKEN
        at = path.stat().st_mtime if path.exists() else 0.0
        return at if at >= self.ended else 0.0

    def _unheard(self) -> int:
        """Return how often the coordinator was not there in a row.

        It is asked more and more seldom: a hundred sites that wait for one another would keep it busy with that.
        """
        if time.monotonic() >= self.next_knock:
            self.unheard = self.unheard + 1 if self.way.knock() else 0
            self.next_knock = time.monotonic() + self.pause
            self.pause = min(2 * self.pause, KNOCKS[1])
        return self.unheard


class Consent:
    """The user's yes or no to runs that wait for it."""

    def __init__(self, state: Path, ask: Callable[[str], bool]) -> None:
        self.state, self.ask = state, ask
        for folder, agreement in self._agreements():  # whoever joins again may think again
            if agreement.decision in ("declined", "told"):
                agreement.decided("asked").write(folder)

    def seek(self) -> None:
        """Ask about every run that waits; end the command once the coordinator knows that its run was declined."""
        for folder, agreement in self._agreements():
            if agreement.decision == "asked":
                yes = self.ask(f"take part in {folder.name}?")
                agreement.decided("accepted" if yes else "declined").write(folder)
            if agreement.decision == "told":
                raise RefusedBySiteError(f"{folder.name} was declined; the coordinator was told so, and nothing else")

    def _agreements(self) -> list[tuple[Path, Agreement]]:
        from imperfed.flower.site.agreement import Agreement  # only where there is someone to ask

        folders = [path.parent for path in sorted(self.state.glob(f"*/{AGREEMENT}"))]
        return [(folder, agreement) for folder in folders if (agreement := Agreement.read(folder)) is not None]


def join(joining: Joining, tell: Callable[[str], None], ask: Callable[[str], bool] | None = None) -> None:
    """Answer the coordinator until its run has ended; report every message as it is sent.

    `ask`: asks the user a question; None: nobody is there to answer.
    """
    if ask is None and not joining.accepts:
        raise UsageError(
            "nobody is at a terminal to accept the run: give --policy with what this site allows (`imperfed policy` "
            "writes one), or --accept for whatever the defaults allow"
        )
    way, site = joining.way(), joining.site()
    log, ending = Tail(joining.state / LOG), Ending(joining.state, way)
    consent = None if ask is None or joining.accepts else Consent(joining.state, ask)

    def ended() -> bool:
        for line in log.lines():
            tell(line)
        if consent is not None:
            consent.seek()
        return ending.here()

    try:
        with (
            private_files(joining.state),
            alone(joining.state / "lock", str(joining.state)),
            orderly(),
            SuperNode(way, joining.state / NODE_HOME, site, APP, tell) as node,
        ):
            node.watch(ended)
    except KeyboardInterrupt:
        raise Stopped(f"left {way.address}; the same command rejoins, with all the state of {site['name']}") from None
    if (page := ending.page) is not None:
        for line in undrawn(page) or farewell(site["name"], joining.data, page):
            tell(line)
    if ending.trouble:
        raise SiteFailedError(f"the run has ended, but {ending.trouble}")


def undrawn(page: Path) -> list[str]:
    """Draw the report of a run that has ended; return what to tell if that fails, for the results are there."""
    if page.name != REPORT:
        return []
    try:
        with private_files():
            _in_a_fork(_draw_report, page.parent)
    except Exception as error:
        again = f"imperfed report {page.parent}"
        return [f"the run has ended; its results are in {page.parent}, but no report ({error}). To draw it: {again}"]
    return []


def farewell(name: str, data: Path, page: Path) -> list[str]:
    """Return what a site is told when a run or an audit has ended: what it has, and what it can do with it."""
    if page.name == REPORT:
        return [f"the run has ended; {name}'s own report, model and labels: {page}"]
    return [
        f"the audit has ended; {name}'s own page, figures and labels: {page}",
        f"the file with corrected labels, if you want it: imperfed repair {data} --audit {page.parent} --out NEW",
    ]
