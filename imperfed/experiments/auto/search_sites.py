"""The sites of a search: what it asks of them, and how they answer where all of them are in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from imperfed.alone import AloneModel
from imperfed.core.errors import ImperfedError
from imperfed.core.federation import HeldOut
from imperfed.core.labels import Labels
from imperfed.core.temperatures import likelihoods
from imperfed.core.threads import one_thread
from imperfed.data.federate import FederatedData
from imperfed.engine.backends.task_pool import InlinePool, Task, TaskPool, cores, make_pool
from imperfed.engine.failures import Failure
from imperfed.evaluation.paired import Difference, Figure, over_rows, paired_difference
from imperfed.experiments.auto import trials
from imperfed.experiments.auto.alone_search import AloneContext, OwnModel, OwnModels, fit_families, joined
from imperfed.experiments.auto.combinations import Combination
from imperfed.experiments.auto.consensus import agreement, resolved
from imperfed.experiments.auto.site_choice import (
    WEIGHTS,
    mixed,
    mixture_table,
    own_option,
    sums_of,
)
from imperfed.experiments.auto.trials import Progress
from imperfed.experiments.config import Config
from imperfed.experiments.device import Hardware

Tell = Callable[[int, int], None]
"""Takes how much is done, and of how much."""


@dataclass(frozen=True)
class SiteChoice:
    """What one site does: its own model, and the weight of the federated one beside it."""

    alone: AloneModel | None
    """None: sites fit no models alone here."""
    weight: float
    validity: float | None
    """The score of its own model on the rows that it holds out."""


@dataclass(frozen=True)
class Settled:
    """What sites have chosen."""

    choices: Sequence[SiteChoice]
    difference: Difference | None
    """Between their mixtures and their own models, on the rows held out."""
    sums: Sequence[Tensor]
    """Each site's sums at all temperatures of its mixture."""


class SearchSites(Protocol):
    """The sites of a search, which are asked in this order.

    What is common to all sites is chosen from sums over the rows that each holds out, one tensor per site. Where a site
    departs from it, the site decides by itself.
    """

    def advance(
        self, alive: Sequence[int], done: Mapping[int, Progress], rounds: int, last: bool
    ) -> Iterator[tuple[int, Progress | Failure]]:
        """Train trials up to a round, each from where it stopped; yield how far each has come, or why it failed.

        `last`: whether this is the last rung, in which a trial ends once it gets no better.
        """

    def apply(self, numbers: Sequence[int], done: Mapping[int, Progress]) -> None:
        """Apply the models of trials of their best rounds to the rows held out, and keep what they say."""

    def agree(self, numbers: Sequence[int], weights: Mapping[int, float]) -> list[Tensor]:
        """Return each site's `agreement` of these trials with all that were applied; `weights`: of the latter."""

    def judge_by_consensus(self, weights: Mapping[int, float]) -> None:
        """Take what all trials agree on as the labels held out in everything that follows."""

    def calibrate(self, number: int, progress: Progress) -> list[Tensor]:
        """Return each site's sums at all temperatures of a trial's model of its best round."""

    def fit_alone(self, kinds: Sequence[AloneModel], tell: Tell) -> list[Tensor]:
        """Fit these families to each site's own rows; return each site's sums under all of them."""

    def mix(self, family: int, temperature: float) -> list[Tensor]:
        """Let each site choose its own model, given the common family; return its sums under all mixtures."""

    def settle(self, weight: int) -> Settled:
        """Let each site choose its weight, given the number of the common one; compare mixtures and own models."""

    def close(self) -> None:
        """Free what the search needed."""


@dataclass(frozen=True)
class SearchContext(AloneContext):
    """What the processes of a search see."""

    combinations: Sequence[Combination]


def _apply(context: SearchContext, number: int, progress: Progress) -> list[Any]:
    return [logits.numpy() for logits in trials.held_out_logits(context.combinations[number], context.held, progress)]


def _advance(context: SearchContext, number: int, progress: Progress, rounds: int, last: bool) -> Progress:
    return trials.advance(context.combinations[number], context.held, progress, rounds, last)


@dataclass
class SitesHere:
    """All sites in this process, or in worker processes beside it."""

    held: FederatedData
    combinations: Sequence[Combination]
    base: Config
    applied: dict[int, list[Tensor]] = field(default_factory=dict)
    """What trials say about each site's rows held out, as probabilities."""
    weights: Mapping[int, float] = field(default_factory=dict)
    """Of the trials whose consensus replaces the labels held out; empty: none does."""
    logits: list[Tensor] = field(default_factory=list)
    """Of the chosen trial's models for each site's rows held out."""
    fitted: list[OwnModels] = field(default_factory=list)
    own: list[OwnModel] = field(default_factory=list)
    """The model that each site has chosen."""
    federated: list[Tensor] = field(default_factory=list)
    """The calibrated probabilities of the chosen trial's models."""

    def __post_init__(self) -> None:
        import sklearn.ensemble  # noqa: F401 (here, before the processes are forked, rather than in each of them)

        context = SearchContext(self.held, self.base.run.seed, self.combinations)
        on_cpu = Hardware.of(self.base.run).device.type == "cpu"
        workers = self.base.rounds.workers or cores()
        self.pool: TaskPool = make_pool(context, workers) if on_cpu else InlinePool(context)

    @property
    def _held(self) -> HeldOut:
        held = self.held.federation.validation
        assert held is not None
        return held

    def _labels(self) -> list[Labels]:
        """Return the labels that each site holds out."""
        return [self._held.at(k)[1] for k in range(len(self.held.federation.sites))]

    def _judges(self) -> list[Labels]:
        """Return the labels by which models are judged."""
        labels = self._labels()
        if not self.weights:
            return labels
        return [resolved(one, self._said(k), self.weights) for k, one in enumerate(labels)]

    def _judges_of_mixtures(self) -> list[Labels]:
        """Return the labels by which mixtures are judged: in a consensus, sites' own models have a say as well."""
        labels = self._labels()
        if not self.weights:
            return labels
        says = (joined(self._said(k), self.weights, self.fitted[k].models) for k in range(len(labels)))
        return [resolved(one, *said) for one, said in zip(labels, says, strict=True)]

    def _said(self, site: int) -> dict[int, Tensor]:
        return {number: sites[site] for number, sites in self.applied.items()}

    def advance(
        self, alive: Sequence[int], done: Mapping[int, Progress], rounds: int, last: bool
    ) -> Iterator[tuple[int, Progress | Failure]]:
        tasks: list[Task] = [(_advance, (t, done.get(t, Progress()), rounds, last)) for t in alive]
        for place, result in self.pool.run(tasks):
            yield alive[place], result

    def apply(self, numbers: Sequence[int], done: Mapping[int, Progress]) -> None:
        tasks: list[Task] = [(_apply, (number, done[number])) for number in numbers]
        labels = self.held.federation.labels
        for place, result in self.pool.run(tasks):
            if isinstance(result, Failure):
                raise ImperfedError(f"auto: {result.reason}")
            said = [labels.probabilities(torch.from_numpy(logits)) for logits in result]
            self.applied[numbers[place]] = said

    def agree(self, numbers: Sequence[int], weights: Mapping[int, float]) -> list[Tensor]:
        with one_thread():
            return [agreement(one, self._said(k), weights, numbers) for k, one in enumerate(self._labels())]

    def judge_by_consensus(self, weights: Mapping[int, float]) -> None:
        self.weights = dict(weights)

    def calibrate(self, number: int, progress: Progress) -> list[Tensor]:
        with one_thread():
            self.logits = trials.held_out_logits(self.combinations[number], self.held, progress)
            pairs = zip(self._judges(), self.logits, strict=True)
            return [told_at_temperatures(labels, logits) for labels, logits in pairs]

    def fit_alone(self, kinds: Sequence[AloneModel], tell: Tell) -> list[Tensor]:
        fitted = fit_families(self.pool, self.held.federation, kinds, tell)
        self.fitted = [replace(own, labels=labels) for own, labels in zip(fitted, self._judges(), strict=True)]
        return [sums_of(own.table()) for own in self.fitted]

    def mix(self, family: int, temperature: float) -> list[Tensor]:
        self.own = [fitted.models[fitted.chosen(family)] for fitted in self.fitted]
        self.federated = [
            labels.probabilities(logits / temperature)
            for labels, logits in zip(self._labels(), self.logits, strict=True)
        ]
        return [sums_of(table) for table in self._tables()]

    def _tables(self) -> list[Tensor]:
        three = zip(self._judges_of_mixtures(), self.federated, self.own, strict=True)
        return [mixture_table(labels, federated, own.probability) for labels, federated, own in three]

    def settle(self, weight: int) -> Settled:
        options = [own_option(table, weight) for table in self._tables()]
        choices = [
            SiteChoice(own.kind, WEIGHTS[option], own.score) for own, option in zip(self.own, options, strict=True)
        ]
        sites = list(zip(self._labels(), self.federated, self.own, choices, strict=True))
        pairs = [figures_on_held_out(labels, one, own.probability, choice.weight) for labels, one, own, choice in sites]
        with one_thread():
            sums = [
                told_at_temperatures(judge, labels.logits(mixed(one, own.probability, choice.weight)))
                for judge, (labels, one, own, choice) in zip(self._judges_of_mixtures(), sites, strict=True)
            ]
        return Settled(choices, paired_difference(pairs, self.base.run.seed), sums)

    def close(self) -> None:
        self.pool.close()


def told_at_temperatures(labels: Labels, logits: Tensor) -> Tensor:
    """Return the log-likelihood of all these labels at each temperature: all that a site says about them."""
    return torch.tensor(likelihoods(logits, labels), dtype=torch.float64)


def figures_on_held_out(labels: Labels, federated: Tensor, alone: Tensor, weight: float) -> tuple[int, Figure, Figure]:
    """Return how many rows a site holds out, and the figures of its mixture and of its own model over any of them."""
    pair = (mixed(federated, alone, weight), alone)
    ours, own = (over_rows(_validity, labels.logits(one), _Rows(labels)) for one in pair)
    return len(labels), ours, own


@dataclass(frozen=True)
class _Rows:
    """Labels from which rows are taken by their numbers."""

    labels: Labels

    def __getitem__(self, rows: Tensor) -> Labels:
        return self.labels.take(rows)


def _validity(logits: Tensor, labels: Labels) -> float:
    return labels.validity(logits).score
