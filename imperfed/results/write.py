"""The end of a run: write labels and models, and collect all results in `summary.json`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from imperfed.core.threads import one_thread
from imperfed.data.federate import FederatedData
from imperfed.data.sparse import width
from imperfed.engine.engine import Engine
from imperfed.engine.population import Scores
from imperfed.evaluation.evaluator import ANNOTATED, NEVER_ANNOTATED, Evaluator
from imperfed.evaluation.model_figures import figure
from imperfed.evaluation.prediction_counts import PredictionCounts
from imperfed.evaluation.temperature import UNFITTED, Temperature
from imperfed.evaluation.time_to_target import TargetReached
from imperfed.experiments.config import RunConfig
from imperfed.results.auto_summary import AutoSummary
from imperfed.results.confidence import README, readme
from imperfed.results.data_facts import DataFacts
from imperfed.results.folder import RunFolder
from imperfed.results.labels import LabelOutcome, write_labels
from imperfed.results.metrics import sent
from imperfed.results.missing import by_class, class_aurocs_of
from imperfed.results.models import write_models
from imperfed.results.prediction_figures import CalibrationSummary, PredictionSummary
from imperfed.results.privacy_summary import PrivacySummary
from imperfed.results.repair_summary import RepairSummary
from imperfed.results.site_verdicts import write_verdicts
from imperfed.results.summary import GlobalFigure, OverSites, SiteSummary, Summary, ValidationSummary


@dataclass(frozen=True)
class RunOutcome:
    """What is known at the end of a run besides its data, in a simulation or at one real site."""

    run: RunConfig
    objective: str
    rounds: int
    personal: dict[int, Scores]
    """By the number of the site, for the sites that were evaluated."""
    common: Scores
    labels: LabelOutcome
    class_aurocs: Tensor | None
    """The AUROC of every class at every site, [K, C], if labels are missing."""
    temperature: Temperature = UNFITTED
    predictions: PredictionCounts | None = None
    """For the test rows of all sites."""
    account: dict[str, float] = field(default_factory=dict)
    seconds: float | None = None
    target: TargetReached | None = None
    repair: RepairSummary | None = None
    validation: ValidationSummary | None = None
    privacy: PrivacySummary | None = None
    auto: AutoSummary | None = None


def finish_simulation(
    folder: RunFolder,
    engine: Engine,
    data: FederatedData,
    evaluator: Evaluator,
    run: RunConfig,
    temperature: Temperature,
) -> RunOutcome:
    """Evaluate a run that has finished its rounds, and write its labels and models."""
    personal, common = engine.evaluate()
    inferred = engine.inferred_labels() if data.federation.labels.inferable else None
    labels = write_labels(folder, inferred, data.federation, evaluator, temperature.value)
    write_models(folder, engine, data)
    spec = engine.population.spec
    return RunOutcome(
        run=run,
        objective=spec.objective.name,
        rounds=engine.state.round,
        personal=personal,
        common=common,
        labels=labels,
        class_aurocs=class_aurocs_of(engine, evaluator),
        temperature=temperature,
        predictions=predictions_of(engine, data, evaluator, temperature),
        account=spec.algorithm.figures(engine.state.servers[0]),
        validation=judged_by_validation(engine),
    )


def predictions_of(
    engine: Engine, data: FederatedData, evaluator: Evaluator, temperature: Temperature
) -> PredictionCounts | None:
    """Count what the sites' models predict for their test rows; None where the rows are elsewhere."""
    population = engine.population
    if data.federation.elsewhere:
        return None
    at_device, kind = evaluator.to(population.runtime.net.row.device), type(data.federation.labels)
    with one_thread():
        return at_device.predictions(population.predictor, kind, temperature.value, not engine.personalised)


def judged_by_validation(engine: Engine) -> ValidationSummary | None:
    """Return the best round by the rows that the sites hold out; None if they hold none out."""
    best, held = engine.state.best, engine.population.federation.validation
    if best is None or held is None:
        return None
    sizes, judging = held.sizes(), engine.judging(len(held.sizes()))
    return ValidationSummary(
        figure=held.labels.validity_name(),
        round=best.round,
        score=figure(best.score),
        rows=sum(sizes if judging is None else (sizes[k] for k in judging)),
        kept=bool(best.state),
        early=engine.state.round < engine.rounds.rounds and engine.stalled,
    )


def write_summary(folder: RunFolder, data: FederatedData, evaluator: Evaluator, outcome: RunOutcome) -> Summary:
    """Write `summary.json` and return the summary."""
    federation, run, facts = data.federation, outcome.run, DataFacts.of(data.facts)
    summary = Summary(
        title=run.title,
        method=run.method,
        objective=outcome.objective,
        data=federation.name,
        seed=run.seed,
        data_seed=run.data_seed,
        seconds=outcome.seconds,
        rounds=outcome.rounds,
        metric=evaluator.metric,
        personal=OverSites.of([one[evaluator.metric] for one in outcome.personal.values()], evaluator.one_test),
        common={name: GlobalFigure(figure(value), n) for name, (value, n) in outcome.common.items()},
        sites=site_summaries(data, evaluator.metric, outcome),
        sent=sent(folder.records()),
        account=outcome.account,
        input=tuple(federation.x.shape[1:]),
        features=width(federation.x),
        standardised=bool(data.scale.tree()),
        classes=federation.classes,
        facts=facts,
        labels=outcome.labels.summary,
        by_class=by_class(outcome.class_aurocs, federation, evaluator),
        predictions=PredictionSummary.of(outcome.predictions, federation.classes),
        calibration=CalibrationSummary.of(outcome.temperature, outcome.predictions),
        target=outcome.target,
        validation=outcome.validation,
        repair=outcome.repair,
        suspicions=write_verdicts(folder, facts.adversaries, run.defence),
        privacy=outcome.privacy,
        fairness=evaluator.fairness(list(outcome.personal.values()), run.seed),
        auto=outcome.auto,
    )
    if summary.labels is not None:
        folder.write(README, readme(summary.labels, type(federation.labels), summary.calibration))
    folder.write("summary.json", summary.to_json())
    return summary


def site_summaries(data: FederatedData, metric: str, outcome: RunOutcome) -> tuple[SiteSummary, ...]:
    """Summarise every site, including those without test rows."""
    federation, nothing = data.federation, (math.nan, 0)
    sites = []
    for k, (name, rows) in enumerate(zip(federation.sites, federation.sizes(), strict=True)):
        scores = outcome.personal.get(k, {})
        (value, n), (annotated, _), (never, _) = (
            scores.get(name, nothing) for name in (metric, ANNOTATED, NEVER_ANNOTATED)
        )
        sites.append(
            SiteSummary(
                site=name,
                train=rows,
                test=n,
                value=figure(value),
                labels=outcome.labels.by_site[k],
                auroc_annotated=figure(annotated),
                auroc_never_annotated=figure(never),
            )
        )
    return tuple(sites)
