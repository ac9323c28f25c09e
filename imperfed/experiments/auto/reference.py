"""The honest reference of a comparison: what sites reach alone with the models that a practitioner would fit there."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from dataclasses import replace

from imperfed.data.federate import FederatedData
from imperfed.data.held_out import hold_out
from imperfed.data.sparse import width
from imperfed.engine.backends.task_pool import cores, make_pool
from imperfed.engine.population import Scores
from imperfed.evaluation.evaluator import Evaluator
from imperfed.experiments.auto.alone_search import AloneContext, choose_alone, families, fit_sites, left_out
from imperfed.experiments.auto.request import HELD_OUT
from imperfed.experiments.config import Config
from imperfed.experiments.run_data import as_trained
from imperfed.experiments.run_parts import make_evaluator
from imperfed.results.mixture import Mixture, Predictor

MINUTES = 1.0
"""What choosing among the families may take, as a budget of `auto`: with many or large sites, fewer are tried."""


def alone_scores(config: Config, data: FederatedData, names: Collection[str] = ()) -> dict[int, Scores] | str:
    """Return the figures of `alone_models` on the sites' test rows, or why there are none."""
    fitted = alone_models(config, data, names)
    if isinstance(fitted, str):
        return fitted
    evaluator, models = fitted
    return {k: evaluator.site(k, model) for k, model in enumerate(models)}


def alone_models(
    config: Config, data: FederatedData, names: Collection[str] = ()
) -> tuple[Evaluator, list[Predictor]] | str:
    """Return the models that sites fit alone, and what measures them; or why there are none.

    Each site's family is chosen on rows that it holds out, and then fitted to all its rows. Labels are as given: a
    repair takes all sites. `data`: before any attack or repair; `names`: of the families to choose from, all if empty.
    """
    at_sites = as_given(config, data)
    federation, evaluator = at_sites.federation, make_evaluator(config, at_sites)
    if reason := left_out(federation, width(federation.x)):
        return reason
    if not evaluator.sites:
        return "sites have no test rows of their own"
    return evaluator, alone_predictors(config, at_sites, MINUTES, names)


def as_given(config: Config, data: FederatedData) -> FederatedData:
    """Return the data as sites have them that are alone: attacked, but not repaired, which takes all of them."""
    return as_trained(replace(config, repair=None), data)[0]


def alone_predictors(
    config: Config, at_sites: FederatedData, minutes: float, names: Collection[str] = ()
) -> list[Predictor]:
    """Return each site's own model, fitted to all its rows once its family is chosen; `minutes`: a budget of `auto`."""
    federation = at_sites.federation
    held = at_sites if federation.validation else hold_out(at_sites, HELD_OUT, config.run.data_seed)
    workers, seed = config.rounds.workers or cores(), config.run.seed
    with closing(make_pool(AloneContext(held, seed), workers)) as pool:
        own = choose_alone(pool, held.federation, families(held.federation, minutes, names))
    with closing(make_pool(AloneContext(at_sites, seed), workers)) as pool:
        models = fit_sites(pool, [one.kind for one in own])
    return [Mixture(model, 0.0).by_itself(type(federation.labels)) for model in models]
