"""What each site can do alone: families of models fitted to its own rows, one chosen on the rows that it holds out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import torch
from torch import Tensor

from imperfed.alone import AloneModel, SiteModel, alone_models, fit
from imperfed.core.federation import Federation
from imperfed.core.labels import Labels
from imperfed.data.sparse import width
from imperfed.experiments.auto.work import CORES, fitting_seconds

MANY = 100
"""Classes above which no model per class is fitted."""
SHARE = 0.5
"""The part of a search that may go into models alone."""
FOLDS = 5


def left_out(federation: Federation) -> str:
    """Return why no model is fitted at the sites alone; empty if nothing stands against it."""
    if width(federation.x):
        return "inputs are sparse, which the models that sites fit alone do not read"
    if federation.labels.several and len(federation.classes) > MANY:
        return f"rows may have several of {len(federation.classes)} classes: one model per class at each site is too much"
    return ""


def families(federation: Federation, budget: float) -> list[AloneModel]:
    """Return the models to fit at every site: all settings of all families, or their defaults, or the cheaper ones."""
    known = list(alone_models().values())
    every: list[AloneModel] = [setting for family in known for setting in family.grid()]
    shorter = [[family() for family in known[: len(known) - n]] for n in range(len(known))]
    choices = [every, *shorter[:-1], [family() for family in known if family.name == "logistic"]]
    left = SHARE * 60 * budget * CORES
    return next((some for some in choices if _work(some, federation) <= left), choices[-1])


def _work(some: Sequence[AloneModel], federation: Federation) -> float:
    columns, classes = federation.x[:1].numel(), len(federation.classes)
    models, classes = (classes, 2) if federation.labels.several else (1, classes)
    each = [fitting_seconds(kind, n, columns, classes, models) for kind in some for n in federation.sizes()]
    return sum(each) + max(each, default=0.0) * len(federation.sizes())  # the chosen one is fitted again


def described(kind: AloneModel) -> str:
    """Return a family and those of its settings that are not its defaults."""
    usual = type(kind)()
    own = [(f.name, getattr(kind, f.name)) for f in fields(kind) if getattr(kind, f.name) != getattr(usual, f.name)]
    return " ".join([kind.name, *(f"{name}={value:g}" for name, value in own)])


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
