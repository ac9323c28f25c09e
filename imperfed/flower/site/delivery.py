"""What a site predicts with at the end of a run: the model of the run, after `auto` mixed with the site's own."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from torch import Tensor

from imperfed.core.network import Net
from imperfed.evaluation.model_figures import figure
from imperfed.evaluation.paired import Difference
from imperfed.evaluation.temperature import AT_REAL_SITES, Temperature
from imperfed.experiments.auto.alone_search import site_rows
from imperfed.experiments.auto.outcome import TEST_ROWS, gain_of, mixed_labels, temperature_of
from imperfed.flower.messages.payload import Payload
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.messages.search_figures import MixtureFigures
from imperfed.flower.site.runtime import LocalSite, RemoteSite, open_site
from imperfed.flower.site.search_answers import read_own_choice
from imperfed.flower.site.store import key_in
from imperfed.results.auto_summary import AutoSummary, SiteMixture
from imperfed.results.folder import RunFolder
from imperfed.results.mixture import Mixture, Predictor, read_mixture


@dataclass(frozen=True)
class SiteDelivery:
    """The model of a run at one site, and what the site has chosen for itself in a search, if there was one."""

    remote: RemoteSite
    net: Net
    choice: SiteMixture | None
    mixture: Mixture | None

    @classmethod
    def of(cls, folder: RunFolder, remote: RemoteSite, net: Net) -> SiteDelivery:
        """Return what a site has; `folder`: its own, of the run."""
        (site,) = remote.data.federation.sites
        return cls(remote, net, read_own_choice(folder), read_mixture(folder, site))

    @property
    def predictor(self) -> Predictor:
        """What the site predicts with."""
        return (
            self.net
            if self.mixture is None
            else self.mixture.beside(self.net, type(self.remote.data.federation.labels))
        )

    def labels(self, record: AutoSummary | None) -> Tensor | None:
        """Return the labels inferred for the site's own rows; `record`: of the search, if there was one."""
        inferred = self.remote.runtime.infer_labels(self.remote.site, self.net)
        if inferred is None or record is None or self.choice is None:
            return inferred
        federation = self.remote.data.federation
        return mixed_labels(inferred, record, 0, *site_rows(federation, 0), self.remote.config.run.seed)

    def temperature(self, record: AutoSummary | None) -> Temperature:
        """Return what the logits of the model delivered are divided by."""
        if record is None:
            return Temperature(1.0, reason=AT_REAL_SITES)
        return temperature_of(record, type(self.remote.data.federation.labels))

    def figures(self) -> MixtureFigures:
        """Return the figures of the mixture on the site's test rows, and how its own model compares."""
        evaluator, mixture = self.remote.evaluator, self.mixture
        if not evaluator.sites:
            return MixtureFigures({}, None, None)
        scores = evaluator.site(0, self.predictor)
        if mixture is None:
            return MixtureFigures(scores, None, None)
        own = mixture.by_itself(type(self.remote.data.federation.labels))
        value = figure(evaluator.site(0, own)[evaluator.metric][0])
        return MixtureFigures(scores, value, self._difference(own))

    def _difference(self, own: Predictor) -> Difference | None:
        return self.remote.evaluator.compare([self.predictor], [own], self.remote.config.run.seed)

    def record(self, payload: Payload) -> AutoSummary | None:
        """Return the search as this site sees it: the trials of all, its own choice and its own gain."""
        if "auto" not in payload.words:
            return None
        record = msgspec.json.decode(payload.text("auto"), type=AutoSummary)
        if self.choice is None:
            return record
        figures = self.figures()
        own = msgspec.structs.replace(self.choice, value=figures.alone)
        gain = gain_of(figures.difference, self.remote.evaluator.metric, TEST_ROWS) or record.gain
        return msgspec.structs.replace(record, sites=(own,), gain=gain)


def judge(place: LocalSite, payload: Payload) -> Payload:
    """Tell the figures of what the site predicts with."""
    run_info = RunInfo.of(payload)
    remote = open_site(place, run_info, key_in(payload, "from"))
    net = remote.load(payload.trees["model"])
    return Payload(SiteDelivery.of(RunFolder(place.state / run_info.run), remote, net).figures().words())
