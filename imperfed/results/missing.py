"""What a run gives back where labels are missing: the labels filled in, and figures class by class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from imperfed.core.federation import Federation
from imperfed.engine.engine import Engine
from imperfed.evaluation.evaluator import Evaluator, figure
from imperfed.results.folder import RunFolder
from imperfed.results.summary import ClassSummary, FilledLabels

WORDS = {1: "present", 0: "absent", -1: ""}


def write_filled_labels(
    folder: RunFolder, inferred: Tensor, federation: Federation, evaluator: Evaluator
) -> tuple[FilledLabels | None, list[float | None]]:
    """Write `labels/<site>.parquet`; return how well missing labels were filled in, in all and at each site."""
    assert evaluator.annotated is not None
    annotated = evaluator.annotated.any(0)  # nothing was learned of the other classes
    missing = (federation.labels.values < 0) & annotated
    aurocs = []
    for k, site in enumerate(federation.sites):
        a, b = federation.starts[k], federation.starts[k + 1]
        folder.save_table(f"labels/{site}.parquet", filled_table(federation, a, b, inferred[a:b], annotated))
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


def filled_table(federation: Federation, a: int, b: int, inferred: Tensor, annotated: Tensor) -> dict[str, list[Any]]:
    """Return the columns of a site's label file, one line per example and class.

    `annotated`: which classes some site annotates.
    """
    classes, values = federation.classes, federation.labels.values[a:b].flatten()
    present, known = inferred.flatten() >= 0.5, annotated.repeat(b - a)
    suggested = torch.where(known, present.int(), -1)
    confidence = torch.where(present, inferred.flatten(), 1 - inferred.flatten())
    return {
        "id": [name for name in federation.ids[a:b] for _ in classes],
        "class": list(classes) * (b - a),
        "given": [WORDS[v] for v in values.tolist()],
        "suggested": [WORDS[v] for v in suggested.tolist()],
        "confidence": [c if sure else None for c, sure in zip(confidence.tolist(), known.tolist(), strict=True)],
        "reason": [reason(v, sure) for v, sure in zip(values.tolist(), known.tolist(), strict=True)],
    }


def reason(value: int, annotated: bool) -> str:
    """Say where the suggestion in one line of a label file comes from."""
    if not annotated:
        return "nobody annotates this class"
    return "annotated" if value >= 0 else "filled in"


def class_aurocs_of(engine: Engine, evaluator: Evaluator) -> Tensor | None:
    """Return the AUROC of every class at every site, [K, C]; None where no labels are missing or rows are elsewhere."""
    if evaluator.annotated is None or engine.population.federation.elsewhere:
        return None
    evaluator = evaluator.to(engine.population.runtime.net.row.device)
    return torch.stack([evaluator.by_class(k, engine.population.predictor(k)) for k in range(evaluator.sites)])


def by_class(aurocs: Tensor | None, federation: Federation, evaluator: Evaluator) -> tuple[ClassSummary, ...]:
    """Summarise every class from its AUROC at every site, [K, C]; nothing where no labels are missing."""
    if aurocs is None or evaluator.annotated is None:
        return ()
    columns = zip(federation.classes, federation.labels.values.T, aurocs.T, evaluator.annotated.T, strict=True)
    return tuple(
        ClassSummary(
            name=name,
            annotated_at=tuple(site for site, own in zip(federation.sites, here.tolist(), strict=True) if own),
            annotations=int((values >= 0).sum()),
            positives=int((values == 1).sum()),
            auroc=mean(areas),
            auroc_annotated=mean(areas[here]),
            auroc_never_annotated=mean(areas[~here]),
        )
        for name, values, areas, here in columns
    )


def mean(areas: Tensor) -> float | None:
    """Return the mean of those that exist; None where none does."""
    return figure(float(areas.nanmean()))
