"""A site's place of work: the engine's bench with one site's rows at it, and what the coordinator sent on it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from imperfed.experiments.config import Config
from imperfed.core.batch import Tree
from imperfed.core.context import SiteSetup
from imperfed.data.federate import FederatedData
from imperfed.data.site_files import SiteFiles
from imperfed.core.atomic import lengthen
from imperfed.engine.seeds import SERVER, seeded
from imperfed.engine.site import SiteRuntime, RunSpec
from imperfed.engine.state import State
from imperfed.core.errors import UsageError
from imperfed.experiments.experiment import make_evaluator, make_network, choose_objective
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.site.store import Key, Store
from imperfed.flower.messages.payload import RefusedError
from imperfed.core.labels import Exact
from imperfed.core.network import Layout, Net

REPAIRED = "mended"
"""The name under which a site keeps the labels that a repair suggested."""


@dataclass(frozen=True)
class LocalSite:
    """Where a site works: who it is, how it reads its rows, where it keeps its states, and what only sites know."""

    name: str
    holding: Callable[[Config, str], SiteFiles]
    """From the settings and the declaration to what the site holds."""
    state: Path
    secret: bytes = b""

    def store(self, run: str) -> Store:
        """The states of one run."""
        if not re.fullmatch(r"\w[\w.+-]*", run):  # it comes from elsewhere and becomes the name of a folder
            raise RefusedError(f"{run!r} cannot be the name of a run")
        return Store(self.state / run)

    def log(self, line: str) -> None:
        """A line in the site's own log."""
        self.state.mkdir(parents=True, exist_ok=True)
        lengthen(self.state / "log.txt", [line])


@dataclass
class RemoteRuntime(SiteRuntime):
    """A bench at which one site sits: what it receives came in a message."""

    received: Tree
    config: Config
    scene: FederatedData
    index: int

    def down(self, site: int, opening: bool = False) -> Tree:
        """What the site received."""
        return self.received

    def remembered(self) -> Tree:
        """All that the site keeps, under one name each."""
        tree = {"personal": self.state.personal[self.index]}
        tree |= {f"memory/{name}": t[self.index] for name, t in self.state.memory.items()}
        return tree | {f"rows/{name}": t for name, t in self.state.rows.items()}


def own_data(place: LocalSite, run_info: RunInfo, config: Config, index: int) -> FederatedData:
    """The site's own part of the run, its labels as a repair has left them."""
    data = place.holding(config, run_info.declaration).scene(index, run_info.scale, run_info.annotated)
    mended = place.store(run_info.run).kept(REPAIRED)
    if mended is None:
        return data
    labels = Exact(mended["suggested"], len(data.federation.classes))
    return replace(data, federation=replace(data.federation, labels=labels))


def load_runtime(place: LocalSite, run_info: RunInfo, down: Tree, start: Key) -> RemoteRuntime:
    """The bench with the site's rows, what it received, and the state it starts from."""
    config, k = run_info.config(), run_info.index
    if config.method.opening() and not place.secret:
        raise UsageError(f"{config.run.method} needs a secret that the sites share; join with the file that holds it")
    data = own_data(place, run_info, config, k)
    fed, objective = data.federation, choose_objective(config, data)
    with seeded(config.run.seed, 0, SERVER, "build"):
        shape, classes = tuple(fed.x.shape[1:]), len(fed.classes)
        network = config.method.build(make_network(config, shape, classes, config.model.features))
        layout = Layout.of(network, config.method.is_personal)
        row = layout.row(network)

    def fresh() -> Tree:
        tree = {"personal": layout.personal(row)}
        opened = config.method.init_site(SiteSetup(k, len(fed.x), fed.labels, layout))
        tree |= {f"memory/{name}": t for name, t in opened.items()}
        return tree | {f"rows/{name}": t for name, t in objective.init_rows(fed.labels).items()}

    kept = place.store(run_info.run).load(start, fresh)
    spec = RunSpec(
        config.method,
        objective,
        fed,
        layout,
        config.local,
        config.run.seed,
        make_evaluator(config, data),
        place.secret,
    )
    state = _state(kept, k, down if "w" in down else {"w": row[: layout.shared], "buffers": layout.buffers(row)})
    return RemoteRuntime(spec, state, Net(network.eval(), layout), down, config, data, k)


def _state(kept: Tree, site: int, server: Tree) -> State:
    """One site's state in the engine's shape: every number up to the site's own stands for it."""

    def rows(prefix: str) -> Tree:
        return {name.removeprefix(prefix): t.clone() for name, t in kept.items() if name.startswith(prefix)}

    def for_all(t: torch.Tensor) -> torch.Tensor:
        return t.expand(site + 1, *t.shape)

    memory = {name: for_all(t) for name, t in rows("memory/").items()}
    return State(0, [server], for_all(kept["personal"].clone()), memory, rows("rows/"))
