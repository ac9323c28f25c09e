"""The coordinator: waits for its sites, queries them in every round, and writes the run's folder."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime

import torch
from flwr.serverapp import Grid

from imperfed.core.atomic import append_lines
from imperfed.core.batch import Tree
from imperfed.core.errors import UsageError
from imperfed.data.scale import Scale
from imperfed.data.site_files import ServerFiles, SiteInfo
from imperfed.engine.engine import questions
from imperfed.engine.population import Population
from imperfed.experiments.config import Config
from imperfed.experiments.experiment import Experiment, Watch, wanted_labels
from imperfed.experiments.plugins import refuse_what_stays_here
from imperfed.flower.coordinator.flower_backend import FlowerBackend
from imperfed.flower.coordinator.remote_bins import edges_from_sites
from imperfed.flower.coordinator.remote_repair import repair_at_sites
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.messages.site_info import read_site_infos, write_site_infos
from imperfed.flower.messages.transport import Timeouts, Transport
from imperfed.flower.site.store import Store
from imperfed.results.folder import RunFolder
from imperfed.results.summary import Summary

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
        if self.config.method.pools_data:
            raise UsageError(f"{self.config.run.method} brings all rows to one place, but real sites keep theirs")
        if self.config.attack is not None and self.declaration:
            raise UsageError("attacks are simulated on named datasets; no real site is asked to attack")
        refuse_what_stays_here(self.config, "every real site imports the parts of its run")
        if self.config.run.device == "cuda":
            raise UsageError("real sites compute on the CPU; set device to auto or cpu")
        self.config = replace(self.config, run=replace(self.config.run, device="cpu"))
        greeting = RunInfo("", self.config.toml(), self.declaration, 0, Scale.none(), {})
        self.transport = Transport(self.grid, tuple(self.sites), greeting, self.timeouts, self.say)

    def run(self, watch: Watch) -> Summary:
        """Train to the end, from the last checkpoint if there is one, and write the results."""
        watch.prepare(self.config)
        try:
            with closing(self.experiment()) as experiment:
                summary = experiment.go(self.folder, watch)
                for k, why in self.backend.leave(summary.validation).items():
                    self.folder.log(f"{self.sites[k]} did not write its own report: {why}")
        finally:
            self.count()
        return summary

    def experiment(self) -> Experiment:
        """Return the run, as soon as every site is connected; its sites answer by message."""
        infos = self.gather()
        scale = self.binned(self.central.scale(infos), infos)
        run_infos = self.run_infos(infos, scale)
        # A site or the coordinator may be killed at any time: no more than one round is ever lost.
        config = replace(self.config, rounds=replace(self.config.rounds, checkpoint_every=1))

        def make_backend(population: Population, on_duty: int, workers: int) -> FlowerBackend:
            self.backend = FlowerBackend(self.transport, run_infos, population, on_duty)
            return self.backend

        data = self.central.data(infos, scale)
        if config.repair is not None:
            data = repair_at_sites(config.repair, data, self.transport, run_infos, wanted_labels(config))
        experiment = Experiment(config, data, make_backend)
        if self.folder.checkpoint.exists():
            experiment.engine.state.restore(self.folder.checkpoint)
            self.folder.forget_from(experiment.engine.state.round)
            self.folder.log(f"resumed after round {experiment.engine.state.round}")
        return experiment

    def gather(self) -> list[SiteInfo]:
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
        return infos

    def binned(self, scale: Scale, infos: Sequence[SiteInfo]) -> Scale:
        """Return the scale with the bins that the model wants, which are those with which the run began."""
        bins, kept_in = self.config.model.wanted_bins, Store(self.folder.checkpoint.parent)
        if not bins or len(infos[0].shape) != 1:
            return scale
        kept = kept_in.kept(BINS)
        if kept is None:
            kept = {"edges": edges_from_sites(self.transport, self.run_infos(infos, scale), infos, bins)}
            kept_in.keep(BINS, kept)
        return replace(scale, edges=kept["edges"])

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

    def run_infos(self, infos: Sequence[SiteInfo], scale: Scale) -> list[RunInfo]:
        """Return what each site is told about the run, which every message repeats."""
        features = self.config.model.features or max(info.features for info in infos)
        self.config = replace(self.config, model=replace(self.config.model, features=features))
        annotated = anybody(infos)
        settings, run = self.config.toml(), self.folder.path.name
        return [RunInfo(run, settings, self.declaration, k, scale, annotated) for k in range(len(infos))]


def anybody(infos: Sequence[SiteInfo]) -> Tree:
    """Return which classes any site annotates, where labels may be missing."""
    known = [info.annotated["classes"] for info in infos if info.annotated]
    return {"classes": torch.stack(known).any(0)} if known else {}
