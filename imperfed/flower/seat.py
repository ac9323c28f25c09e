"""A site's place of work: the engine's bench with one site's rows at it, and what the coordinator sent on it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from imperfed.config import Config
from imperfed.core import Site, Tree
from imperfed.data.federate import Scene
from imperfed.data.holding import Holding
from imperfed.disk import lengthen
from imperfed.engine.seeds import SERVER, seeded
from imperfed.engine.site import Bench, Job
from imperfed.engine.state import State
from imperfed.errors import UsageError
from imperfed.experiment import judge_of, network_of, objective_of
from imperfed.flower.charter import Charter
from imperfed.flower.store import Key, Store
from imperfed.flower.wire import RefusedError
from imperfed.labels import Exact
from imperfed.network import Layout, Net

MENDED = "mended"
"""The name under which a site keeps the labels that a repair suggested."""


@dataclass(frozen=True)
class Place:
    """Where a site works: who it is, how it reads its rows, where it keeps its states, and what only sites know."""

    name: str
    holding: Callable[[Config, str], Holding]
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
class Seat(Bench):
    """A bench at which one site sits: what it receives came in a message."""

    received: Tree
    config: Config
    scene: Scene
    index: int

    def down(self, site: int, opening: bool = False) -> Tree:
        """What the site received."""
        return self.received

    def remembered(self) -> Tree:
        """All that the site keeps, under one name each."""
        tree = {"personal": self.state.personal[self.index]}
        tree |= {f"memory/{name}": t[self.index] for name, t in self.state.memory.items()}
        return tree | {f"rows/{name}": t for name, t in self.state.rows.items()}


def own_scene(place: Place, charter: Charter, config: Config, index: int) -> Scene:
    """The site's own part of the run, its labels as a repair has left them."""
    scene = place.holding(config, charter.declaration).scene(index, charter.scale, charter.annotated)
    mended = place.store(charter.run).kept(MENDED)
    if mended is None:
        return scene
    labels = Exact(mended["suggested"], len(scene.federation.classes))
    return replace(scene, federation=replace(scene.federation, labels=labels))


def take_seat(place: Place, charter: Charter, down: Tree, start: Key) -> Seat:
    """The bench with the site's rows, what it received, and the state it starts from."""
    config, k = charter.config(), charter.index
    if config.method.opening() and not place.secret:
        raise UsageError(f"{config.run.method} needs a secret that the sites share; join with the file that holds it")
    scene = own_scene(place, charter, config, k)
    fed, objective = scene.federation, objective_of(config, scene)
    with seeded(config.run.seed, 0, SERVER, "build"):
        shape, classes = tuple(fed.x.shape[1:]), len(fed.classes)
        network = config.method.build(network_of(config, shape, classes, config.model.features))
        layout = Layout.of(network, config.method.stays)
        row = layout.row(network)

    def fresh() -> Tree:
        tree = {"personal": layout.personal(row)}
        opened = config.method.open(Site(k, len(fed.x), fed.labels, layout))
        tree |= {f"memory/{name}": t for name, t in opened.items()}
        return tree | {f"rows/{name}": t for name, t in objective.open(fed.labels).items()}

    kept = place.store(charter.run).load(start, fresh)
    job = Job(
        config.method,
        objective,
        fed,
        layout,
        config.local,
        config.run.seed,
        judge_of(config, scene),
        place.secret,
    )
    state = _state(kept, k, down if "w" in down else {"w": row[: layout.shared], "buffers": layout.buffers(row)})
    return Seat(job, state, Net(network.eval(), layout), down, config, scene, k)


def _state(kept: Tree, site: int, server: Tree) -> State:
    """One site's state in the engine's shape: every number up to the site's own stands for it."""

    def rows(prefix: str) -> Tree:
        return {name.removeprefix(prefix): t.clone() for name, t in kept.items() if name.startswith(prefix)}

    def for_all(t: torch.Tensor) -> torch.Tensor:
        return t.expand(site + 1, *t.shape)

    memory = {name: for_all(t) for name, t in rows("memory/").items()}
    return State(0, [server], for_all(kept["personal"].clone()), memory, rows("rows/"))
