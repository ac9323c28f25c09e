"""How sure the models of a run may be, by the rows that its sites hold out."""

from __future__ import annotations

from imperfed.core.labels import Labels
from imperfed.core.temperatures import likelihoods
from imperfed.core.threads import one_thread
from imperfed.engine.engine import Engine
from imperfed.evaluation.temperature import AT_REAL_SITES, Temperature, fitted
from imperfed.results.label_summary import LabelSummary
from imperfed.results.prediction_figures import CalibrationSummary

README = "labels/README.txt"


def fit_confidence(engine: Engine) -> Temperature:
    """Fit one temperature for the models of all sites to the rows that they hold out, where they do."""
    population, kind = engine.population, type(engine.population.federation.labels)
    held = population.federation.validation
    if population.federation.elsewhere:
        return Temperature(1.0, reason=AT_REAL_SITES)
    if held is None:
        return fitted((), kind, 0)
    sites = [k for k, rows in enumerate(held.sizes()) if rows]
    with one_thread():
        measured = [likelihoods(population.held_out_logits(k), held.at(k)[1]) for k in sites]
    return fitted(measured, kind, held.starts[-1])


def readme(labels: LabelSummary, kind: type[Labels], calibration: CalibrationSummary | None) -> str:
    """Return what stands beside the label files: what their columns mean, and what a confidence is worth."""
    unit = "one line per training row and class" if kind.several else "one line per training row"
    lines = [
        f"Labels inferred for the training rows: {unit}.",
        "`given` is the label as it was, which is never overwritten; `suggested` is what the run takes to be true;",
        "`confidence` is the probability of the suggestion, 0 to 1.",
        "",
        f"On average the suggestions are {100 * labels.mean_confidence:.0f} % sure.",
    ]
    if labels.accuracy is not None:
        lines[-1] += f" {100 * labels.accuracy:.0f} % are right (n = {labels.n}, against the truth)."
    else:
        lines[-1] += " How many are right is not known: the truth is not."
    if calibration is not None:
        lines.append(f"Of the models' predictions: {calibration.sentence()}.")
    return "\n".join(lines) + "\n"
