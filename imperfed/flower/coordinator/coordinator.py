"""The coordinator: waits for its sites, queries them in every round, and writes the run's folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from imperfed.core.atomic import append_lines
from imperfed.core.errors import SiteFailedError, UsageError
from imperfed.data.federate import FederatedData
from imperfed.data.scale import Scale
from imperfed.data.site_description import check_alike
from imperfed.data.site_files import ServerFiles
from imperfed.engine.engine import MakeBackend
from imperfed.engine.population import Population
from imperfed.engine.server import questions
from imperfed.experiments.config import Config
from imperfed.experiments.experiment import Experiment
from imperfed.experiments.run_data import wanted_labels
from imperfed.experiments.watch import Watch
from imperfed.flower.coordinator.acceptance import accepted
from imperfed.flower.coordinator.flower_backend import FlowerBackend
from imperfed.flower.coordinator.gathered_sites import GatheredSites
from imperfed.flower.coordinator.leaving import Leaving
from imperfed.flower.coordinator.remote_bins import edges_from_sites
from imperfed.flower.coordinator.remote_repair import repair_at_sites
from imperfed.flower.messages.ending import ending_words, never_words
from imperfed.flower.messages.payload import Word
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.messages.site_info import WORDS, read_site_infos, write_site_infos
from imperfed.flower.messages.stored_reply import Mailbox
from imperfed.flower.messages.transport import Timeouts, Transport
from imperfed.flower.site.store import Store
from imperfed.report import write_report
from imperfed.results.folder import RunFolder
from imperfed.results.summary import Summary

MakeExperiment = Callable[[Config, FederatedData, MakeBackend], Experiment]
UNTRUSTED_SHARE = 0.5
"""The most weight of one site by the rows it says it has: no site alone outweighs all others together."""
MESSAGE_LOG = "messages.txt"
"""The file in a run's folder that says which sites were asked, which answered, and how long it took."""
BINS = "bins"
"""The name under which the bins of the columns are kept with the checkpoint."""


@dataclass
class Coordinator:
    """One run with real sites, from the first hello to the last result."""

    grid: Mailbox
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
        config = accepted(config, declared=bool(self.declaration))
        if config.rounds.max_share == 0 and len(self.sites) > 2:
            return replace(config, rounds=replace(config.rounds, max_share=UNTRUSTED_SHARE))
        return config

    def run(self, watch: Watch) -> Summary:
        """Train to the end, from the last checkpoint if there is one, and write the results."""
        watch.prepare(self.config)
        with self.counted():
            if (summary := self.end_again()) is not None:
                return summary
            with closing(self.experiment()) as experiment:
                return self.conduct(experiment, watch, lambda k: {})

    def conduct(self, experiment: Experiment, watch: Watch, words: Callable[[int], dict[str, Word]]) -> Summary:
        """Train to the end, write the results, and let each site write its own; `words`: what else it is told."""
        summary = experiment.go(self.folder, watch)
        ending, never = ending_words(summary.validation), self.backend.never_answered()
        payloads = self.backend.with_models(lambda k: ending | never_words(never.get(k, "")) | words(k))
        self.end(Leaving.write(self.folder, self.sites, payloads), self.timeouts.back)
        if never:
            reasons = "; ".join(f"{self.sites[k]} failed in every round: {why}" for k, why in never.items())
            raise SiteFailedError(f"{reasons}. The run has ended without what these sites know")
        return summary

    def end(self, leaving: Leaving, seconds: float) -> None:
        """Let every site write its own results; wait so long for those that are away, and name those that did not."""
        for name, why in leaving.finish(self.transport, seconds).items():
            line = f"{name} has yet to get its results: {why}; `imperfed resume {self.folder.path}` waits for it"
            self.folder.log(line)

    def end_again(self) -> Summary | None:
        """Finish the end of a run whose results are written, for sites that missed it; None: it is not at its end."""
        summary, leaving = self.folder.summary(), Leaving.read(self.folder)
        if summary is None or leaving is None:
            return None
        self.transport.infos = read_site_infos(self.folder.checkpoint.parent)
        if not (self.folder.path / "report.html").exists():
            write_report(self.folder)
        self.end(leaving, self.timeouts.gather)
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
            if note := experiment.engine.state.restore(self.folder.checkpoint):
                self.folder.log(note)
            self.folder.forget_from(experiment.engine.state.round)
            self.folder.log(f"resumed after round {experiment.engine.state.round}")
        if experiment.engine.state.round == 0 and (unfit := self.backend.rehearse()):
            reasons = "; ".join(f"{self.sites[k]}: {why}" for k, why in unfit.items())
            raise UsageError(f"before round 1, the first step of the run failed at {reasons}. Nothing was trained")
        return experiment

    def gather(self) -> GatheredSites:
        """Return what the sites reported when the run began, so that a resumed run has the same scale and sizes."""
        kept_in = self.folder.checkpoint.parent
        begun = self.folder.checkpoint.exists() and (kept_in / WORDS).exists()
        self.transport.infos = read_site_infos(kept_in) if begun else {}
        opening = (*self.config.method.opening(), *questions(self.config.defence, self.central.attribute))
        all_needed = not begun or self.config.repair is not None or bool(opening)
        quorum = self.config.rounds.quorum_of(len(self.sites))
        infos = self.transport.gather(None if all_needed else quorum)
        check_alike(infos, self.central.classes)
        if not begun:  # they agree, and what is kept decides with whom the run can be resumed
            write_site_infos(kept_in, infos)
        run, share = self.folder.path.name, self.config.rounds.max_share
        search = self.transport.greeting.search
        return GatheredSites(self.transport, self.central, tuple(infos), run, self.declaration, share, search=search)

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
            told, share = sites.told(config), sites.max_share
            kept = {"edges": edges_from_sites(self.transport, told, sites.infos, bins, share)}
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
