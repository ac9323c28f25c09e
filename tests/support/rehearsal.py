"""A run in one process and the same run with sites that are asked by message."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from imperfed.core.batch import Tree
from imperfed.core.labels import Labels
from imperfed.core.network import Network
from imperfed.data.federate import FederatedData
from imperfed.data.scale import Scale
from imperfed.data.site_files import SiteFiles
from imperfed.data.whole_federation import taken_apart
from imperfed.engine.schedule import RoundReport
from imperfed.experiments.config import Config
from imperfed.experiments.experiment import Experiment
from imperfed.experiments.resolving import resolve
from imperfed.flower.coordinator.coordinator import Coordinator
from imperfed.flower.messages.local_grid import LocalGrid, Node
from imperfed.flower.messages.transport import Timeouts
from imperfed.flower.site.handlers import make_app
from imperfed.flower.site.policy import SitePolicy
from imperfed.flower.site.runtime import LocalSite, open_site
from imperfed.results.folder import RunFolder
from imperfed.testing.toy import LOCAL, differences, world

AT_ONCE = Timeouts(gather=5, hello=5, answer=0.05, poll=0.005)


def normalised(shape: tuple[int, ...], classes: int) -> Network:
    """A small network with buffers that travel, of a kind that is trained site by site in one process as well."""
    return Network(nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.Tanh()), nn.Linear(8, classes))


def raw(kind: type[Labels]) -> FederatedData:
    """Four unequal sites of a toy problem, nothing scaled."""
    federation, oracle = world(kind)
    return FederatedData(federation, oracle, {}, Scale.none())


def scaled(raw: FederatedData) -> FederatedData:
    """The scene as one process has it: every input scaled by the sums of all sites."""
    fed, oracle = raw.federation, raw.oracle
    scale = Scale.of(fed.x, [torch.arange(*cut) for cut in zip(fed.starts, fed.starts[1:], strict=False)])
    trusted = fed.trusted and replace(fed.trusted, x=scale(fed.trusted.x))
    federation = replace(fed, x=scale(fed.x), public=scale(fed.public), trusted=trusted)
    return FederatedData(federation, replace(oracle, test_x=tuple(map(scale, oracle.test_x))), raw.facts, scale)


def settled(method: str, **more: Any) -> Config:
    """Three of four sites a round, for three rounds, unless told otherwise."""
    words: dict[str, Any] = {
        "method": method,
        "model.name": "tests.support.rehearsal:normalised",
        "local.steps": LOCAL.steps,
        "local.batch": LOCAL.batch,
        "local.lr": LOCAL.lr,
        "rounds.rounds": 3,
        "rounds.participation": 0.75,
        "rounds.workers": 1,
    }
    return resolve(words=words | more)


@dataclass
class Alone:
    """A run in one process."""

    config: Config
    scene: FederatedData

    def __post_init__(self) -> None:
        self.reports: list[RoundReport] = []
        self.experiment = Experiment(self.config, self.scene)
        self.engine = self.experiment.engine

    def go(self) -> Alone:
        self.engine.run(self.reports.append, lambda: False, None)
        return self

    def site(self, k: int) -> Tree:
        """What one site remembers, and the model with which it predicts."""
        state, fed = self.engine.state, self.experiment.data.federation
        kept = {"personal": state.personal[k]} | {f"memory/{n}": t[k] for n, t in state.memory.items()}
        kept |= {f"rows/{n}": t[fed.starts[k] : fed.starts[k + 1]] for n, t in state.rows.items()}
        return kept | {f"model/{n}": t for n, t in self.engine.model(k).items()}


class Apart:
    """The same run with sites that hold their own rows and are asked by message."""

    def __init__(self, config: Config, raw: FederatedData, folder: Path, scales: bool = True) -> None:
        self.config, self.folder = config, folder
        self.central, self.holdings = taken_apart(raw)
        if scales:
            self.holdings = [replace(h, scales=True) for h in self.holdings]
        self.secret = hashlib.sha256(f"{config.run.seed} known to the sites".encode()).digest()
        self.grid = LocalGrid({100 + k: self.node(h) for k, h in enumerate(self.holdings)})
        self.reports: list[RoundReport] = []

    def place(self, holding: SiteFiles) -> LocalSite:
        here, policy = self.folder / holding.name, SitePolicy(modules=("tests.*",))
        return LocalSite(holding.name, lambda config, declaration: holding, here, self.secret, policy=policy)

    def node(self, holding: SiteFiles) -> Node:
        return Node(make_app(lambda config: self.place(holding)), {"name": holding.name})

    def coordinator(self, timeouts: Timeouts = AT_ONCE) -> Coordinator:
        folder = RunFolder(self.folder / "run")
        folder.path.mkdir(parents=True, exist_ok=True)
        return Coordinator(self.grid, self.config, self.central, [h.name for h in self.holdings], folder, "", timeouts)

    def start(self, timeouts: Timeouts = AT_ONCE) -> Apart:
        self.server = self.coordinator(timeouts)
        self.experiment = self.server.experiment()
        self.engine = self.experiment.engine
        return self

    def go(self, rounds: int = 10**9) -> Apart:
        """To the end, or until so many rounds are done."""
        self.engine.run(self.reports.append, lambda: self.engine.state.round >= rounds, self.server.folder.checkpoint)
        return self

    def site(self, k: int) -> Tree:
        """What one site has on its disk, and the model that it makes of it."""
        start = tuple(self.engine.state.memory["answered"][k].tolist())
        remote = open_site(self.place(self.holdings[k]), self.engine.backend.run_infos[k], start)
        w, buffers = self.engine.population.shared_model(k)
        net = remote.load({"w": w, "buffers": buffers})
        return remote.remembered() | {f"model/{n}": t.clone() for n, t in net.layout.tree(net.row).items()}


def assert_same(alone: Alone, apart: Apart) -> None:
    """Bit for bit: what the server remembers, what every site does, every figure, loss and note."""
    for mine, theirs in zip(alone.engine.state.servers, apart.engine.state.servers, strict=True):
        assert not differences(mine, theirs)
    for k in range(len(apart.holdings)):
        assert not differences(alone.site(k), apart.site(k)), k
    for mine, theirs in zip(alone.reports, apart.reports, strict=True):
        assert repr(replace(mine, seconds=0.0)) == repr(replace(theirs, seconds=0.0))  # as text: a figure may be NaN
