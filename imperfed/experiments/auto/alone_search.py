"""What each site can do alone: families of models fitted to its own rows, one chosen on the rows that it holds out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from imperfed.alone import AloneModel, SiteModel, alone_models, fit
from imperfed.core.errors import ImperfedError
from imperfed.core.federation import Federation
from imperfed.core.labels import Labels
from imperfed.core.labels.validity import UNKNOWN, mean
from imperfed.data.federate import FederatedData
from imperfed.engine.backends.task_pool import TaskPool, portable
from imperfed.engine.failures import Failure
from imperfed.experiments.auto.consensus import agreement, contradictory, leaves_open, resolved, weight_of
from imperfed.experiments.auto.site_choice import common_option, own_option, sums_of
from imperfed.experiments.auto.work import CORES, fitting_seconds

MANY = 100
"""Classes above which no model per class is fitted."""
SHARE = 0.5
"""The part of a search that may go into models alone."""
FOLDS = 5
SETTINGS = (3, 2)
"""The settings of each family that are tried where all are too much, the most usual ones."""


@dataclass(frozen=True)
class AloneContext:
    """What the processes that fit models see."""

    held: FederatedData
    """The data with rows held out."""
    seed: int


@dataclass(frozen=True)
class OwnModel:
    """A family of models, fitted to a site's rows."""

    kind: AloneModel
    probability: Tensor
    """Of each class for the rows that the site holds out."""
    score: float | None
    """There."""


@dataclass(frozen=True)
class OwnModels:
    """All families that were fitted to one site's rows, and the labels that it holds out."""

    models: Sequence[OwnModel]
    labels: Labels

    def table(self) -> Tensor:
        """Return the log-likelihood of each label held out under every family, [rows, families]."""
        return torch.stack([self.labels.log_likelihood(one.probability) for one in self.models], 1)

    def said(self, numbers: Iterable[int]) -> dict[int, Tensor]:
        """Return what families say about the rows held out, by their numbers."""
        return {number: self.models[number].probability for number in numbers}

    def chosen(self, common: int) -> int:
        """Return the number of the site's own family: that of all sites, unless its rows say otherwise."""
        return own_option(self.table(), common)


def fit_families(
    pool: TaskPool, federation: Federation, kinds: Sequence[AloneModel], progress: Callable[[int, int], None]
) -> list[OwnModels]:
    """Fit all families at every site. The context of the pool is an `AloneContext`.

    `progress` is called with the number of models fitted, and of all.
    """
    held, sites = federation.validation, range(len(federation.sites))
    assert held is not None
    pairs = [(k, kind) for k in sites for kind in kinds]
    fitted: dict[tuple[int, AloneModel], OwnModel] = {}
    for number, result in pool.run([(_judge, pair) for pair in pairs]):
        if isinstance(result, Failure):
            raise ImperfedError(f"{federation.sites[pairs[number][0]]} alone: {result.reason}")
        probability, score = result
        fitted[pairs[number]] = OwnModel(pairs[number][1], torch.from_numpy(probability), score)
        progress(len(fitted), len(pairs))
    return [OwnModels([fitted[k, kind] for kind in kinds], held.at(k)[1]) for k in sites]


def choose_alone(pool: TaskPool, federation: Federation, kinds: Sequence[AloneModel]) -> list[OwnModel]:
    """Return each site's own model, chosen by the log-likelihood of the labels that it holds out."""
    fitted = judged_together(fit_families(pool, federation, kinds, lambda done, of: None))
    common = common_option([sums_of(own.table()) for own in fitted])
    return [own.models[own.chosen(common)] for own in fitted]


def judged_together(fitted: list[OwnModels]) -> list[OwnModels]:
    """Return the same models, to be judged by what all agree on where their scores contradict one another.

    Only families that decide between candidates have a vote, if there are any: the others share the sets' bias.
    """
    if not leaves_open(type(fitted[0].labels)):
        return fitted
    voters = [n for n, one in enumerate(fitted[0].models) if one.kind.resolves] or range(len(fitted[0].models))
    rows, known = sum(len(own.labels) for own in fitted), [own for own in fitted if len(own.labels)]
    scores = {n: mean(own.labels.validity(own.said([n])[n]) for own in known).score for n in voters}
    weights = {n: weight_of(score) for n, score in scores.items()}
    agreeing = sum(float(agreement(own.labels, own.said(voters), weights, [])[-1]) for own in fitted)
    if not contradictory([*scores.values()], agreeing, rows):
        return fitted
    return [replace(own, labels=resolved(own.labels, own.said(voters), weights)) for own in fitted]


def joined(
    trials: Mapping[int, Tensor], weights: Mapping[int, float], own: Sequence[OwnModel]
) -> tuple[dict[int, Tensor], dict[int, float]]:
    """Return what trials say and how much each counts, and the same of a site's own models that decide, as -1, -2 ...

    Trials confirm one another, and so do own models: a mixture of the two is judged by both, with equal say.
    """
    voters = {-1 - n: one for n, one in enumerate(own) if one.kind.resolves and one.score is not None}
    odds = {n: weight_of(one.score) for n, one in voters.items() if one.score is not None}
    scale = sum(weights.values()) / sum(odds.values()) if odds else 0.0
    said = {n: one.probability for n, one in voters.items()}
    return {**trials, **said}, {**weights, **{n: scale * weight for n, weight in odds.items()}}


def _judge(context: AloneContext, site: int, kind: AloneModel) -> tuple[Any, float | None]:
    own = fit_and_judge(context.held.federation, site, kind, context.seed)
    return own.probability.numpy(), own.score


def fit_and_judge(federation: Federation, site: int, kind: AloneModel, seed: int) -> OwnModel:
    """Fit a family to a site's rows, and judge it by the rows that the site holds out."""
    assert federation.validation is not None
    x, labels = federation.validation.at(site)
    model = fit_alone(kind, *site_rows(federation, site), seed)
    probability = probabilities(model, x, labels)
    validity = labels.validity(labels.logits(probability)) if len(x) else UNKNOWN
    return OwnModel(kind, probability, validity.score if validity.known else None)


def fit_sites(pool: TaskPool, kinds: Sequence[AloneModel]) -> list[SiteModel]:
    """Fit each site's own model to the training rows of the pool's `AloneContext`."""
    models: dict[int, SiteModel] = {}
    for k, result in pool.run([(_fit, (k, kind)) for k, kind in enumerate(kinds)]):
        if isinstance(result, Failure):
            raise ImperfedError(f"site {k + 1} alone: {result.reason}")
        models[k] = SiteModel.of({name: torch.as_tensor(array) for name, array in result.items()})
    return [models[k] for k in range(len(kinds))]


def _fit(context: AloneContext, site: int, kind: AloneModel) -> dict[str, Any]:
    rows = site_rows(context.held.federation, site)
    return portable(fit_alone(kind, *rows, context.seed).tensors())


def left_out(federation: Federation, features: int) -> str:
    """Return why no model is fitted at the sites alone; empty if nothing stands against it.

    `features`: those of sparse inputs; 0 if they are not sparse.
    """
    if features:
        return "inputs are sparse, which the models that sites fit alone do not read"
    if federation.labels.several and len(federation.classes) > MANY:
        return f"rows may have several of {len(federation.classes)} classes: one model each is too much"
    return ""


def families(federation: Federation, budget: float, names: Collection[str] = ()) -> list[AloneModel]:
    """Return the models to fit at every site: all settings of all families, or the first ones, or the cheapest.

    If even that is too much for the budget, it is shortened.

    `names`: of the families to choose from; empty: all.
    """
    kind, shape = type(federation.labels), tuple(federation.x.shape[1:])
    known = [family for name, family in alone_models().items() if not names or name in names]
    grids = [grid for family in known if (grid := family.grid(kind, shape))]
    some: list[list[AloneModel]] = [[one for grid in grids for one in grid[:n]] for n in (None, *SETTINGS)]
    first = sorted((grid[0] for grid in grids), key=lambda one: _work([one], federation))
    choices = [*some, *(first[:n] for n in range(len(first), 0, -1))]
    left = SHARE * 60 * budget * CORES
    chosen = next((some for some in choices if _work(some, federation) <= left), choices[-1])
    share = left / max(_work(chosen, federation), left)
    return chosen if share == 1 else [one.shortened(share) for one in chosen]


def _work(some: Sequence[AloneModel], federation: Federation) -> float:
    columns, classes = math.prod(federation.x.shape[1:]), len(federation.classes)
    models, classes = (classes, 2) if federation.labels.several else (1, classes)
    each = [fitting_seconds(kind, n, columns, classes, models) for kind in some for n in federation.sizes()]
    return sum(each) + max(each, default=0.0) * len(federation.sizes())  # the chosen one is fitted again


def own_model(family: str, settings: Mapping[str, Any]) -> AloneModel:
    """Return a family with its settings."""
    return alone_models()[family](**settings)


def site_rows(federation: Federation, site: int) -> tuple[Tensor, Labels]:
    """Return the inputs and labels of a site's training rows."""
    start, stop = federation.starts[site : site + 2]
    return federation.inputs(start, stop), federation.labels.between(start, stop)


def fit_alone(kind: AloneModel, x: Tensor, labels: Labels, seed: int) -> SiteModel:
    """Fit a model in one thread: forked processes must not start more, and their number must change nothing."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return fit(kind, x, labels, seed)


def probabilities(model: SiteModel, x: Tensor, labels: Labels) -> Tensor:
    """Return a model's probabilities as this kind of labels has them."""
    return labels.normalised(model.probabilities(x))


def cross_fitted(kind: AloneModel, x: Tensor, labels: Labels, seed: int) -> Tensor:
    """Return probabilities for a site's own rows, each by a model that has not seen the row."""
    whole = torch.full((len(x), labels.classes), 1 / labels.classes)
    if len(x) < 2:
        return whole
    fold = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)) % min(FOLDS, len(x))
    for number in fold.unique().tolist():
        rest, own = (fold != number).nonzero().flatten(), (fold == number).nonzero().flatten()
        model = fit_alone(kind, x[rest], labels.take(rest), seed)
        whole[own] = probabilities(model, x[own], labels)
    return whole
