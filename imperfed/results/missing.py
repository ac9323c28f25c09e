"""Results of a run with missing labels: how well they were filled in, and figures per class."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from imperfed.core.federation import Federation
from imperfed.engine.engine import Engine
from imperfed.evaluation.evaluator import Evaluator
from imperfed.evaluation.model_figures import figure
from imperfed.results.label_summary import FilledLabels
from imperfed.results.summary import ClassSummary


def judge_filled_labels(
    inferred: Tensor, federation: Federation, evaluator: Evaluator, learned: Tensor | None
) -> tuple[FilledLabels | None, list[float | None]]:
    """Judge how well missing labels were filled in, overall and per site.

    `learned`: the classes that some site annotates, bool [C]; None: all of them.
    """
    missing = federation.labels.unknown()
    if learned is not None:
        missing = missing & learned  # nothing was learned about the other classes
    aurocs = []
    for a, b in pairwise(federation.starts):
        figures = evaluator.filled_in(a, b, missing[a:b], inferred[a:b])
        aurocs.append(None if figures is None else figures.auroc)
    if not missing.any():
        return None, aurocs
    confidence = torch.maximum(inferred, 1 - inferred)[missing]
    overall = evaluator.filled_in(0, len(missing), missing, inferred)
    summary = FilledLabels(
        filled_in=int(missing.sum()),
        mean_confidence=float(confidence.mean()),
        accuracy=overall.accuracy if overall else None,
        always_absent=overall.always_absent if overall else None,
        auroc=overall.auroc if overall else None,
        n=overall.n if overall else 0,
    )
    return summary, aurocs


def class_aurocs_of(engine: Engine, evaluator: Evaluator) -> Tensor | None:
    """Return the AUROC of every class at every site, [K, C]; None if no labels or no test rows are at hand."""
    if evaluator.annotated is None or engine.population.federation.elsewhere or not evaluator.sites:
        return None
    evaluator = evaluator.to(engine.population.runtime.net.row.device)
    return torch.stack([evaluator.by_class(k, engine.population.predictor(k)) for k in range(evaluator.sites)])


def by_class(aurocs: Tensor | None, federation: Federation, evaluator: Evaluator) -> tuple[ClassSummary, ...]:
    """Summarise every class from its AUROC at every site, [K, C]; empty if no labels are missing."""
    if aurocs is None or evaluator.annotated is None:
        return ()
    counts = federation.labels.counts()
    columns = zip(
        federation.classes,
        counts.labelled.tolist(),
        counts.positive.tolist(),
        aurocs.T,
        evaluator.annotated.T,
        strict=True,
    )
    return tuple(
        ClassSummary(
            name=name,
            annotated_at=tuple(
                site for site, annotates in zip(federation.sites, here.tolist(), strict=True) if annotates
            ),
            annotations=annotations,
            positives=positives,
            auroc=mean(areas),
            auroc_annotated=mean(areas[here]),
            auroc_never_annotated=mean(areas[~here]),
        )
        for name, annotations, positives, areas, here in columns
    )


def mean(areas: Tensor) -> float | None:
    """Return the mean of the areas that are defined; None if none is."""
    return figure(float(areas.nanmean()))
