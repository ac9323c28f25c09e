"""What a rank holds: the rows, the memory and the test rows of its own sites, cut from the whole and sent to it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.federation import Federation
from imperfed.core.network import Net, Network
from imperfed.engine.population import ModelEvaluator, Population, Share
from imperfed.engine.shared_memory import shared, shared_room
from imperfed.engine.site import RunSpec, SiteRuntime
from imperfed.engine.state import State

Form = tuple[torch.Size, torch.dtype]


@dataclass(frozen=True)
class HeldSites:
    """A rank's part of a population, as it crosses to the rank; the sites' memory follows by itself."""

    spec: RunSpec
    network: Network
    federation: Federation
    evaluator: ModelEvaluator
    max_share: float
    share: Share
    servers: list[Tree]
    memory: dict[str, Form]
    """What every site remembers, by name: its first length is the number of sites."""
    personal: Form
    rows: Tree
    """What is remembered about the rows of these sites."""

    @classmethod
    def cut(cls, population: Population, share: Share, common: bool) -> HeldSites:
        """Cut the part of some sites out of a population in which all rows are here; `common`: the common test rows."""
        state, federation = population.state, population.federation
        rows = rows_at(population, share)
        return cls(
            replace(population.spec, questions=()),
            population.runtime.net.module,
            federation.of_sites(share.sites),
            population.evaluator.of_sites(share.tested, common),
            population.max_share,
            share,
            state.servers,
            {name: (t.shape, t.dtype) for name, t in state.memory.items()},
            (state.personal.shape, state.personal.dtype),
            {name: t[rows] for name, t in state.rows.items()},
        )

    def population(self, device: torch.device) -> Population:
        """Return the population of a process that holds these sites alone."""
        runtime = SiteRuntime(self.spec, Net(self.network, self.spec.layout))
        state = State(
            0,
            [{name: shared(t) for name, t in server.items()} for server in self.servers],
            shared_room(*self.personal),
            {name: shared_room(*form) for name, form in self.memory.items()},
            {name: shared(t) for name, t in self.rows.items()},
        )
        held = Population(runtime, self.federation, state, self.evaluator, self.max_share, self.share)
        if device.type != "cpu":
            held.move_to(device)
        return held


def rows_at(population: Population, share: Share) -> Tensor:
    """Return the numbers of some sites' rows among those of the population."""
    starts = population.federation.starts
    return torch.cat([torch.arange(*starts[k : k + 2]) for k in share.sites] or [torch.arange(0)])


def memory_of(population: Population, share: Share) -> Tree:
    """Return what some sites remember, named as in a checkpoint."""
    at, rows, state = list(share.sites), rows_at(population, share), population.state
    tree = {f"memory/{name}": t[at] for name, t in state.memory.items()} | {"personal": state.personal[at]}
    return tree | {f"rows/{name}": t[rows.to(t.device)] for name, t in state.rows.items()}


def remember(population: Population, share: Share, tree: Tree) -> None:
    """Let some sites remember what `memory_of` returned."""
    at, rows, state = list(share.sites), rows_at(population, share), population.state
    state.personal[at] = tree["personal"]
    for name, t in state.memory.items():
        t[at] = tree[f"memory/{name}"]
    for name, t in state.rows.items():
        t[rows.to(t.device)] = tree[f"rows/{name}"].to(t.device)
