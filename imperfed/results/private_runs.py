"""The summary of a private run, from its engine and its settings."""

from __future__ import annotations

from collections.abc import Iterator

from imperfed.data.federate import FederatedData
from imperfed.engine.engine import Engine
from imperfed.engine.private_run import PrivacyBudget
from imperfed.experiments.config import Config
from imperfed.results.privacy_summary import PrivacySummary


def privacy_of(engine: Engine, config: Config, data: FederatedData) -> PrivacySummary | None:
    """Return what a run has cost the site that it cost most; None if it is not private."""
    mechanism, budget, round = config.privacy, engine.budget, engine.state.round
    if mechanism is None:
        return None
    releases = max(PrivacyBudget(mechanism, engine.sample).releases(round).values(), default=0)
    early = round < engine.rounds.rounds and not engine.stalled and budget is not None and budget.forbids(round)
    return PrivacySummary(
        mechanism=mechanism.name,
        epsilon=mechanism.epsilon(releases) if mechanism.multiplier else None,
        delta=mechanism.delta,
        releases=releases,
        early=early,
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
