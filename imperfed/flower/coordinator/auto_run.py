"""`auto` with real sites: the search, then an ordinary run of what was chosen, whose results are those of mixtures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from imperfed.core.errors import DataError, UsageError
from imperfed.data.federate import FederatedData
from imperfed.engine.engine import MakeBackend
from imperfed.evaluation.paired import combined
from imperfed.evaluation.temperature import Temperature
from imperfed.experiments.auto.combinations import Combination
from imperfed.experiments.auto.outcome import TEST_ROWS, gain_of, record_of, temperature_of
from imperfed.experiments.auto.request import AutoRequest
from imperfed.experiments.auto.run import keep_choice, read_choice, search
from imperfed.experiments.auto.search import Search
from imperfed.experiments.config import AUTO, Config
from imperfed.experiments.experiment import Experiment
from imperfed.experiments.watch import Watch
from imperfed.flower.coordinator.coordinator import Coordinator
from imperfed.flower.coordinator.flower_backend import FlowerBackend
from imperfed.flower.coordinator.gathered_sites import GatheredSites
from imperfed.flower.coordinator.remote_search import SitesElsewhere, usable
from imperfed.flower.coordinator.search_checkpoint import SearchCheckpoint
from imperfed.flower.messages.payload import Word
from imperfed.flower.messages.search_figures import MixtureFigures
from imperfed.results.auto_summary import AutoSummary, LabelCheck
from imperfed.results.folder import TRIALS, RunFolder
from imperfed.results.summary import Summary
from imperfed.results.write import RunOutcome

NOT_REPAIRED = "real sites repair labels only for a method that is named"
SEARCHED_BINS = "search-bins"
"""The name under which the bins of a search are kept with the checkpoint."""


@dataclass
class AutoRun:
    """One run of `auto` with real sites."""

    coordinator: Coordinator
    """Its settings are those before anything is chosen, with rows held out (`serving.searched_settings`)."""
    request: AutoRequest

    def __post_init__(self) -> None:
        transport = self.coordinator.transport
        transport.greeting = replace(transport.greeting, search=True)

    def run(self, watch: Watch) -> Summary:
        """Search, unless that is done, and run what was chosen from its last checkpoint to the end."""
        coordinator, folder = self.coordinator, self.coordinator.folder
        base = coordinator.config
        watch.prepare(base)
        with coordinator.counted():
            if (summary := coordinator.end_again()) is not None:
                return summary
            if (folder.path / TRIALS).exists():
                coordinator.config = coordinator.accept(folder.config())
            sites = coordinator.gather()
            if not (folder.path / TRIALS).exists():
                self.search(sites, base, watch)
                coordinator.config = coordinator.accept(folder.config())
            record = read_choice(folder)
            make = partial(ServedAuto, record=record)
            with closing(coordinator.begin(sites.with_all_rows(), make)) as experiment:
                return coordinator.conduct(experiment, watch, lambda k: record_words(record, k))

    def search(self, sites: GatheredSites, base: Config, watch: Watch) -> None:
        """Search with the sites, and keep what was found in the folder."""
        sites = self.binned(sites, base)
        held, request, folder = sites.data(), self.request, self.coordinator.folder
        if held.federation.validation is None:
            raise UsageError("auto chooses on rows that sites hold out, and no site has enough rows for that")
        if sites.features and not base.model.features:
            request = replace(request, words={**request.words, "model.features": sites.features})
        checkpoint = SearchCheckpoint(folder.checkpoint.parent / "search")
        watch.begin(replace(base, run=replace(base.run, method=AUTO)), held, 0)

        def make_sites(combinations: Sequence[Combination]) -> SitesElsewhere:
            return SitesElsewhere(sites, combinations, base, checkpoint)

        # Messages take time that is not work: how long a search takes is left to the sites.
        found = search(folder, Search(request, held, make_sites, watch.search, watch.stop, emergency=math.inf))
        record = record_of(found, request, held, base.split.validation, LabelCheck(words=NOT_REPAIRED))
        if not record.alone_left_out:
            SitesElsewhere(sites, (), base, checkpoint).keep(record.temperature, record.mixture_temperature)
        keep_choice(folder, record, found.combination.config)
        checkpoint.forget()

    def binned(self, sites: GatheredSites, base: Config) -> GatheredSites:
        """Return the sites with bins for the models that take them, learned once for all trials."""
        try:
            return self.coordinator.binned(sites, sites.fitting(base), base.model.bins, SEARCHED_BINS)
        except DataError:  # inputs that are not standardised have none
            return sites


def record_words(record: AutoSummary, site: int) -> dict[str, Word]:
    """Return what a site is told of a search, for its own report: nothing about other sites."""
    own = msgspec.structs.replace(record, sites=record.sites[site : site + 1])
    return {"auto": msgspec.json.encode(own).decode()}


class ServedAuto(Experiment):
    """The run of what a search has chosen; the sites tell the figures of their mixtures."""

    def __init__(self, config: Config, data: FederatedData, make_backend: MakeBackend, record: AutoSummary) -> None:
        super().__init__(config, data, make_backend)
        self.record = record

    def temperature(self) -> Temperature:
        """Return what the logits of the models delivered are divided by, fitted in the search."""
        return temperature_of(self.record, type(self.data.federation.labels))

    def finished(self, folder: RunFolder, outcome: RunOutcome) -> RunOutcome:
        """Return the outcome with the figures of the mixtures, and what federating brought."""
        if not any(site.alone for site in self.record.sites) or not self.evaluator.sites:
            return replace(outcome, auto=self.record)
        told, record = self._ask(folder), self.record
        values = {k: one.alone for k, one in told.items()}
        sites = tuple(msgspec.structs.replace(site, value=values.get(k)) for k, site in enumerate(record.sites))
        difference = combined([one.difference for one in told.values() if one.difference is not None])
        gain = record.gain if difference is None else gain_of(difference, self.evaluator.metric, TEST_ROWS)
        return replace(
            outcome,
            personal={k: one.scores for k, one in told.items()},
            auto=msgspec.structs.replace(record, gain=gain, sites=sites),
        )

    def _ask(self, folder: RunFolder) -> dict[int, MixtureFigures]:
        """Return what the sites tell about their mixtures; one that does not is named in the log, and left out."""
        backend, federation = self.engine.backend, self.data.federation
        assert isinstance(backend, FlowerBackend)
        replies = backend.transport.send("query.judge", backend.with_models(lambda k: {}), "mixtures")
        tests, classes, known = self.data.facts["test_rows"], len(federation.classes), self.evaluator.figure_names
        told, failed = usable(replies, lambda k, reply: MixtureFigures.of(reply, tests[k], classes, known))
        for k, why in failed.items():
            folder.log(f"{federation.sites[k]} did not tell the figures of its mixture: {why}")
        return told
