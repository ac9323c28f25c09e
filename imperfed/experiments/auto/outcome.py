"""What a search found, and what is delivered at the end: at each site a mixture of the federated and its own model."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import pairwise

import msgspec
import torch
from torch import Tensor

from imperfed.core.labels import Labels
from imperfed.core.threads import one_thread
from imperfed.data.federate import FederatedData
from imperfed.evaluation.model_figures import figure
from imperfed.evaluation.paired import Difference
from imperfed.evaluation.prediction_counts import PredictionCounts
from imperfed.evaluation.temperature import Temperature
from imperfed.experiments.auto.alone_search import cross_fitted, own_model, site_rows
from imperfed.experiments.auto.reference import alone_predictors, as_given
from imperfed.experiments.auto.request import AutoRequest
from imperfed.experiments.auto.search import SearchOutcome
from imperfed.experiments.auto.search_sites import SiteChoice
from imperfed.experiments.auto.site_choice import mixed
from imperfed.experiments.config import Config
from imperfed.experiments.experiment import Experiment
from imperfed.results.auto_summary import AutoSummary, Gain, LabelCheck, SiteMixture, TrialSummary
from imperfed.results.folder import RunFolder
from imperfed.results.labels import write_labels
from imperfed.results.mixture import Mixture, Predictor, read_mixture
from imperfed.results.write import RunOutcome

TEST_ROWS, HELD_ROWS = "test rows", "rows held out"
AS_GIVEN, CORRECTED = "with their labels as given", "with the corrected labels"


def record_of(
    found: SearchOutcome, request: AutoRequest, held: FederatedData, share: float, check: LabelCheck
) -> AutoSummary:
    """Return what a search found as it is written to `trials.json`; `share`: of rows held out."""
    combination, federation = found.combination, held.federation
    trials = [
        TrialSummary(t.method, t.model, dict(t.settings), t.rounds, t.best_round, t.score, t.failure)
        for t in found.trials
    ]
    held_out = federation.validation
    assert held_out is not None
    return AutoSummary(
        method=combination.method,
        model=combination.model,
        settings=dict(combination.settings),
        rounds=found.rounds,
        federated=not combination.alone,
        budget=request.budget,
        combinations=found.combinations,
        rungs=found.plan.rungs,
        held_out=share,
        temperature=found.temperature,
        trials=tuple(trials),
        sites=tuple(_site(name, choice) for name, choice in zip(federation.sites, found.sites, strict=True)),
        gain=gain_of(
            found.difference, federation.labels.validity_name(), HELD_ROWS, CORRECTED if check.corrected else ""
        ),
        alone_left_out=found.alone_left_out,
        held_out_rows=held_out.starts[-1],
        mixture_temperature=found.mixture_temperature,
        cut_short=found.cut_short,
        consensus=found.consensus,
        label_check=check,
    )


def _site(name: str, choice: SiteChoice) -> SiteMixture:
    if choice.alone is None:
        return SiteMixture(name, choice.weight)
    return SiteMixture(name, choice.weight, choice.alone.name, asdict(choice.alone), choice.validity)


def gain_of(difference: Difference | None, name: str, rows: str, labels: str = "") -> Gain | None:
    """Return a difference between models delivered and models alone; `labels`: of the latter, if some are corrected."""
    if difference is None:
        return None
    return Gain(name, difference.first, difference.second, difference.low, difference.high, difference.n, rows, labels)


class AutoExperiment(Experiment):
    """The run of what a search has chosen, whose results are those of the mixtures."""

    keeps_inputs = True  # labels are inferred by models that sites fit alone as well

    def __init__(self, config: Config, data: FederatedData, record: AutoSummary) -> None:
        super().__init__(config, data)
        self.given, self.record = data, record

    def temperature(self) -> Temperature:
        """Return what the logits of the models delivered are divided by, fitted in the search."""
        return temperature_of(self.record, type(self.data.federation.labels))

    def finished(self, folder: RunFolder, outcome: RunOutcome) -> RunOutcome:
        """Return the outcome with the figures and labels of the mixtures, and what federating brought."""
        federation = self.data.federation
        mixtures = [read_mixture(folder, site) for site in federation.sites]
        known = [mixture for mixture in mixtures if mixture is not None]
        if not known:
            return replace(outcome, auto=self.record)
        ours, kind = self._delivered(known), type(federation.labels)
        theirs = self._alone() or [mixture.by_itself(kind) for mixture in known]
        tested = range(self.evaluator.sites)
        personal = {k: self.evaluator.site(k, ours[k]) for k in tested}
        areas = outcome.class_aurocs
        return replace(
            outcome,
            personal=personal,
            class_aurocs=None if areas is None else torch.stack([self.evaluator.by_class(k, ours[k]) for k in tested]),
            labels=write_labels(folder, self._inferred(), federation, self.evaluator, outcome.temperature.value),
            predictions=self._predictions(ours),
            auto=self._judged(ours, theirs),
        )

    def _alone(self) -> list[Predictor]:
        """Return what sites reach alone where labels were corrected: models of the labels as given; empty elsewhere."""
        if not self.record.label_check.corrected or not self.evaluator.has_tests:
            return []
        return alone_predictors(self.config, as_given(self.config, self.given), self.record.budget)

    def _predictions(self, ours: list[Predictor]) -> PredictionCounts | None:
        with one_thread():  # the temperature is in the mixtures already
            return self.evaluator.predictions(lambda k: ours[k], type(self.data.federation.labels), 1.0)

    def _delivered(self, mixtures: list[Mixture]) -> list[Predictor]:
        """Return what every site predicts with; each loads its own numbers into the one network when it is asked."""
        population, kind = self.engine.population, type(self.data.federation.labels)

        def federated(k: int) -> Predictor:
            return lambda x: population.predictor(k)(x.to(population.runtime.net.row.device)).cpu()

        return [mixture.beside(federated(k), kind) for k, mixture in enumerate(mixtures)]

    def _judged(self, ours: list[Predictor], theirs: list[Predictor]) -> AutoSummary:
        """Return the record with the figures on test rows, where there are any."""
        difference = self.evaluator.compare(ours, theirs, self.config.run.seed)
        if difference is None:
            return self.record
        name, sites = self.evaluator.metric, self.record.sites
        if self.evaluator.sites:
            values = [figure(self.evaluator.site(k, one)[name][0]) for k, one in enumerate(theirs)]
            pairs = zip(sites, values, strict=True)
            sites = tuple(msgspec.structs.replace(site, value=value) for site, value in pairs)
        return msgspec.structs.replace(self.record, gain=self._gain(difference), sites=sites)

    def _gain(self, difference: Difference) -> Gain | None:
        labels = AS_GIVEN if self.record.label_check.corrected else ""
        return gain_of(difference, self.evaluator.metric, TEST_ROWS, labels)

    def _inferred(self) -> Tensor | None:
        """Return the labels inferred by the mixtures."""
        inferred, federation = self.engine.inferred_labels(), self.data.federation
        if inferred is None:
            return None
        parts = [
            mixed_labels(inferred[a:b], self.record, k, *site_rows(federation, k), self.config.run.seed)
            for k, (a, b) in enumerate(pairwise(federation.starts))
        ]
        return torch.cat(parts)


def temperature_of(record: AutoSummary, kind: type[Labels]) -> Temperature:
    """Return what the logits of the models delivered are divided by, fitted in the search."""
    if kind.uncalibrated:
        return Temperature(1.0, reason=kind.uncalibrated)
    mixtures = any(site.alone for site in record.sites)
    return Temperature(record.mixture_temperature if mixtures else record.temperature, record.held_out_rows)


def mixed_labels(inferred: Tensor, record: AutoSummary, k: int, x: Tensor, labels: Labels, seed: int) -> Tensor:
    """Return the labels that a site's mixture infers for the site's rows; `inferred`: by the federated model.

    `k`: the number of the site in the record. The part of its own model is by one that has not seen the row.
    """
    site = record.sites[k]
    if not labels.inferable:
        return inferred
    if site.weight == 1:
        return labels.tempered(inferred, record.temperature)
    own = cross_fitted(own_model(site.alone, site.settings), x, labels, seed)
    return mixed(inferred, labels.consistent(own), site.weight)
