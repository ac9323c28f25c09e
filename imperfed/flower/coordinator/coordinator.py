"""The coordinator: waits for its sites, queries them in every round, and writes the run's folder."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from flwr.serverapp import Grid

from imperfed.core.atomic import append_lines
from imperfed.core.errors import UsageError
from imperfed.data.federate import FederatedData
from imperfed.data.scale import Scale
from imperfed.data.site_files import ServerFiles
from imperfed.engine.engine import MakeBackend, questions
from imperfed.engine.population import Population
from imperfed.experiments.config import Config
from imperfed.experiments.experiment import Experiment, Watch, wanted_labels
from imperfed.experiments.plugins import refuse_what_stays_here
from imperfed.flower.coordinator.flower_backend import FlowerBackend
from imperfed.flower.coordinator.gathered_sites import GatheredSites
from imperfed.flower.coordinator.remote_bins import edges_from_sites
from imperfed.flower.coordinator.remote_repair import repair_at_sites
from imperfed.flower.messages.ending import ending_words
from imperfed.flower.messages.payload import Word
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.messages.site_info import read_site_infos, write_site_infos
from imperfed.flower.messages.transport import Timeouts, Transport
from imperfed.flower.site.store import Store
from imperfed.results.folder import RunFolder
from imperfed.results.summary import Summary

MakeExperiment = Callable[[Config, FederatedData, MakeBackend], Experiment]
MESSAGE_LOG = "messages.txt"
"""The file in a run's folder that says which sites were asked, which answered, and how long it took."""
BINS = "bins"
"""The name under which the bins of the columns are kept with the checkpoint."""


@dataclass
class Coordinator:
    """One run with real sites, from the first hello to the last result."""

    grid: Grid
    config: Config
    central: ServerFiles
    """The coordinator's own data."""
    sites: Sequence[str]
    folder: RunFolder
    declaration: str = ""
    timeouts: Timeouts = field(default_factory=Timeouts)

    def __post_init__(self) -> None:
        self.config = self.accept(self.config)
        run, settings = self.folder.path.name, self.config.toml()
        greeting = RunInfo(run, settings, self.declaration, 0, Scale.none(), {})
        self.transport = Transport(self.grid, tuple(self.sites), greeting, self.timeouts, self.say)

    def accept(self, config: Config) -> Config:
        """Return settings as real sites follow them; refuse those that they cannot follow."""
        if config.method.pools_data:
            raise UsageError(f"{config.run.method} brings all rows to one place, but real sites keep theirs")
        if config.attack is not None and self.declaration:
            raise UsageError("attacks are simulated on named datasets; no real site is asked to attack")
        refuse_what_stays_here(config, "every real site imports the parts of its run")
        if config.run.device == "cuda":
            raise UsageError("real sites compute on the CPU; set device to auto or cpu")
        return replace(config, run=replace(config.run, device="cpu"))

    def run(self, watch: Watch) -> Summary:
        """Train to the end, from the last checkpoint if there is one, and write the results."""
        watch.prepare(self.config)
        with self.counted(), closing(self.experiment()) as experiment:
            return self.conduct(experiment, watch, lambda k: {})

    def conduct(self, experiment: Experiment, watch: Watch, words: Callable[[int], dict[str, Word]]) -> Summary:
        """Train to the end, write the results, and let each site write its own; `words`: what else it is told."""
        summary = experiment.go(self.folder, watch)
        ending = ending_words(summary.validation)
        for k, why in self.backend.leave(lambda k: ending | words(k)).items():
            self.folder.log(f"{self.sites[k]} did not write its own report: {why}")
        return summary

    def experiment(self) -> Experiment:
        """Return the run, as soon as every site is connected; its sites answer by message."""
        return self.begin(self.gather(), Experiment)

    def begin(self, sites: GatheredSites, make: MakeExperiment) -> Experiment:
        """Return the run with these sites, at its last checkpoint if there is one."""
        self.config = sites.fitting(self.config)
        sites = self.binned(sites, self.config, self.config.model.wanted_bins, BINS)
        run_infos = sites.told(self.config)
        # A site or the coordinator may be killed at any time: no more than one round is ever lost.
        config = replace(self.config, rounds=replace(self.config.rounds, checkpoint_every=1))

        def make_backend(population: Population, on_duty: int, workers: int) -> FlowerBackend:
            self.backend = FlowerBackend(self.transport, run_infos, population, on_duty)
            return self.backend

        data = sites.data()
        if config.repair is not None:
            data = repair_at_sites(config.repair, data, self.transport, run_infos, wanted_labels(config))
        experiment = make(config, data, make_backend)
        if self.folder.checkpoint.exists():
            experiment.engine.state.restore(self.folder.checkpoint)
            self.folder.forget_from(experiment.engine.state.round)
            self.folder.log(f"resumed after round {experiment.engine.state.round}")
        return experiment

    def gather(self) -> GatheredSites:
        """Return what the sites reported when the run began, so that a resumed run has the same scale and sizes."""
        kept_in = self.folder.checkpoint.parent
        self.transport.infos = read_site_infos(kept_in)
        begun = self.folder.checkpoint.exists() and bool(self.transport.infos)
        opening = (*self.config.method.opening(), *questions(self.config.defence, self.central.attribute))
        all_needed = not begun or self.config.repair is not None or bool(opening)
        quorum = max(1, math.ceil(self.config.rounds.quorum * len(self.sites)))
        infos = self.transport.gather(None if all_needed else quorum)
        if not begun:
            write_site_infos(kept_in, infos)
        run, search = self.folder.path.name, self.transport.greeting.search
        return GatheredSites(self.transport, self.central, tuple(infos), run, self.declaration, search=search)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the bytes to and from every site at the end, however it comes."""
        try:
            yield
        finally:
            self.count()

    def binned(self, sites: GatheredSites, config: Config, bins: int, name: str) -> GatheredSites:
        """Return the sites with so many bins for each column; those under this name are the ones first learned."""
        kept_in = Store(self.folder.checkpoint.parent)
        if not bins or len(sites.infos[0].shape) != 1:
            return sites
        kept = kept_in.kept(name)
        if kept is None:
            kept = {"edges": edges_from_sites(self.transport, sites.told(config), sites.infos, bins)}
            kept_in.keep(name, kept)
        return replace(sites, edges=kept["edges"])

    def count(self) -> None:
        """Write `traffic.json`: bytes to and from every site, over all processes that took part in the run."""
        path, total = self.folder.path / "traffic.json", self.transport.traffic()
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for site, ways in total.items():
            for way in ways:
                ways[way] += before.get(site, {}).get(way, 0)
        self.folder.write("traffic.json", json.dumps(total, indent=2))

    def say(self, line: str) -> None:
        """Add a line to `messages.txt`."""
        append_lines(self.folder.path / MESSAGE_LOG, [f"{datetime.now().isoformat(timespec='seconds')} {line}"])
