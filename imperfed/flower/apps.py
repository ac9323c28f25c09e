"""The two applications that Flower's processes run: the coordinator's and a site's."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import pyarrow
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from imperfed.core.errors import ImperfedError
from imperfed.data.site_files import SiteFiles
from imperfed.experiments.auto.run import read_request
from imperfed.experiments.config import Config
from imperfed.experiments.progress import Show
from imperfed.experiments.resolving import resolve
from imperfed.flower.coordinator.audit_run import AuditRun
from imperfed.flower.coordinator.auto_run import AutoRun
from imperfed.flower.coordinator.coordinator import Coordinator
from imperfed.flower.coordinator.mailbox import SuperLinkMailbox
from imperfed.flower.coordinator.serving import Service, home_of, searched_settings
from imperfed.flower.messages.run_info import REPAIR_SUBJECT, TRIAL
from imperfed.flower.messages.transport import Timeouts
from imperfed.flower.processes.child import alone
from imperfed.flower.processes.supernode import SITE
from imperfed.flower.site.handlers import make_app
from imperfed.flower.site.policy import SitePolicy
from imperfed.flower.site.rows_cache import read_once
from imperfed.flower.site.runtime import LocalSite
from imperfed.flower.site.site_data import central_of, read_files
from imperfed.results.folder import RunFolder

AFTER_A_KILL = 30.0  # seconds that the previous process may take to end


def place_of(node: Mapping[str, object]) -> LocalSite:
    """Return the site that this process works for, as `imperfed join` described it."""
    described = json.loads(os.environ[SITE])
    name, secret_file = described["name"], described["secret"]
    secret = bytes.fromhex(Path(secret_file).read_text()) if secret_file else b""
    data, state = Path(described["data"]), Path(described["state"])
    test = Path(described["test"]) if described["test"] else None

    def files(config: Config, declaration: str) -> SiteFiles:
        split = replace(config.split, validation=0.0)  # rows are held out after they are read
        sources, about = (data, *([test] if test else [])), f"{declaration}\n{split}\n{config.run.data_seed}"
        read = partial(read_files, name, data, test, config, declaration)
        return read_once(state, sources, f"{name}\n{about}", read)

    policy = SitePolicy.read(Path(described["policy"])) if described["policy"] else SitePolicy()
    accepts, source = bool(described["accepts"]), str(data)
    return LocalSite(name, files, state, secret, described["device"], policy, accepts, source, test is not None)


def prepare() -> None:
    """Find all parts that settings can name, and load what reads files, once for all processes forked from this one."""
    resolve(words={"method": "fedavg", "data": "digits"})
    pyarrow.array([0])  # with the first array it imports pandas, if that is installed


site = make_app(place_of)
server = ServerApp()


class Aloud(Coordinator):
    """A coordinator that also prints its message log: which sites connected, which answered, how long it took."""

    def say(self, line: str) -> None:
        super().say(line)
        if not line.startswith((TRIAL, REPAIR_SUBJECT)):  # hundreds of these, whose progress is told otherwise
            print(line, flush=True)


class Spoken(RunFolder):
    """A run's folder whose log is also printed; lines that recur in every round are printed once."""

    printed: ClassVar[set[str]] = set()

    def log(self, line: str) -> None:
        super().log(line)
        text = re.sub(r"^round \d+: ", "", line)
        if text not in self.printed and " sites answered, " not in text:
            self.printed.add(text)
            print(line, flush=True)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run from the last checkpoint to the end, and write how it ended, for `imperfed serve`."""
    folder = Spoken(Path(str(context.run_config["folder"])))
    service, home = Service.of(folder), home_of(folder)
    with alone(home / "run.lock", str(folder.path), AFTER_A_KILL):
        try:
            conduct(grid, folder, service, json.loads(str(context.run_config["admitted"])))
            outcome: dict[str, object] = {}
        except ImperfedError as error:
            outcome = {"error": str(error), "exit_code": error.exit_code}
        RunFolder(home).write("outcome.json", json.dumps(outcome))


def conduct(grid: Grid, folder: RunFolder, service: Service, admitted: dict[str, int]) -> None:
    """Train with the sites, or judge their labels, and write the results."""
    declaration = service.declaration(folder)
    show = Show(Console(soft_wrap=True, markup=False, emoji=False, highlight=False, force_terminal=False))
    timeouts = Timeouts(gather=float("inf"), answer=service.answer_timeout)
    central, declared = central_of(declaration), declaration.toml()
    request = read_request(folder)
    config = folder.config() if request is None else searched_settings(request)
    coordinator = Aloud(
        SuperLinkMailbox(grid, home_of(folder)), config, central, service.sites, folder, declared, timeouts
    )
    coordinator.transport.admitted = admitted or None
    if service.audit:
        AuditRun(coordinator).run()
        return
    run: Coordinator | AutoRun = coordinator if request is None else AutoRun(coordinator, request)
    run.run(show.watch())
