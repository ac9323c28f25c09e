"""The summary of a private run, from its engine and its settings."""

from __future__ import annotations

from collections.abc import Iterator

from imperfed.data.federate import FederatedData
from imperfed.engine.engine import Engine
from imperfed.experiments.config import Config
from imperfed.results.privacy_summary import PrivacySummary


def privacy_of(engine: Engine, config: Config, data: FederatedData) -> PrivacySummary | None:
    """Return what a run has cost the site that it cost most; None if it is not private."""
    budget, round = engine.budget, engine.state.round
    if budget is None:
        return None
    releases = max(budget.releases(round).values(), default=0)
    return PrivacySummary(
        mechanism=budget.mechanism.name,
        epsilon=budget.mechanism.epsilon(releases),
        delta=budget.mechanism.delta,
        releases=releases,
        early=round < engine.rounds.rounds and not engine.stalled and budget.forbids(round),
        simulated=not data.federation.elsewhere,
        not_covered=tuple(not_covered(config, data)),
    )


def not_covered(config: Config, data: FederatedData) -> Iterator[str]:
    """Yield what leaves sites besides their updates, or follows from their rows."""
    yield "the number of rows of each site and when it answers"
    if data.scale.tree():
        yield "means and standard deviations of the inputs"
    if config.model.wanted_bins:
        yield "counts of the columns' values for bins"
    if data.federation.labels.partial:
        yield "which classes each site annotates"
    if config.repair is not None:
        yield f"what repair={config.repair.name} asks for before training"
    if data.federation.validation is not None:
        yield "scores on rows held out and the choice of the best round"
    yield "figures on test rows"
    yield "settings that were chosen by looking at these rows"
