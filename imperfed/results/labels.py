"""The labels that a run infers: one file per site, and how many are right where that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from imperfed.core.federation import Federation
from imperfed.core.labels import Annotated, Candidates
from imperfed.evaluation.evaluator import Evaluator
from imperfed.results.folder import RunFolder
from imperfed.results.missing import write_filled_labels
from imperfed.results.summary import LabelSummary, ResolvedLabels


@dataclass(frozen=True)
class LabelOutcome:
    """What became of imperfect labels, in all and at each site."""

    summary: LabelSummary | None
    """None where no labels were inferred."""
    by_site: Sequence[float | None]
    """Each site's figure, as `SiteSummary.labels` has it."""


def write_labels(
    folder: RunFolder, inferred: Tensor | None, federation: Federation, evaluator: Evaluator
) -> LabelOutcome:
    """Write `labels/<site>.parquet` for labels of a kind that leaves something to infer."""
    if inferred is not None and isinstance(federation.labels, Annotated):
        return LabelOutcome(*write_filled_labels(folder, inferred, federation, evaluator))
    if inferred is None or not isinstance(federation.labels, Candidates):
        return LabelOutcome(None, [None] * len(federation.sites))
    confidence, suggested = inferred.max(1)
    shares = []
    for k, site in enumerate(federation.sites):
        a, b = federation.starts[k], federation.starts[k + 1]
        folder.save_table(f"labels/{site}.parquet", label_table(federation, a, b, suggested, confidence))
        shares.append(evaluator.labels(a, b, suggested[a:b]))
    mistaken = evaluator.mistaken(suggested, len(federation.classes))
    summary = ResolvedLabels(
        accuracy=evaluator.labels(0, len(suggested), suggested),
        picking_at_random=float((1.0 / federation.labels.values.sum(1)).mean()),
        mean_confidence=float(confidence.mean()),
        n=len(suggested),
        together=tuple(map(tuple, together(federation.labels).tolist())),
        mistaken=None if mistaken is None else tuple(map(tuple, mistaken)),
    )
    return LabelOutcome(summary, shares)


def label_table(federation: Federation, a: int, b: int, suggested: Tensor, confidence: Tensor) -> dict[str, list[Any]]:
    """Return the columns of the label file of the site that holds the rows a .. b - 1."""
    classes, sets = federation.classes, federation.labels.values[a:b]
    given = [[classes[j] for j, candidate in enumerate(row) if candidate] for row in sets.tolist()]
    return {
        "id": list(federation.ids[a:b]),
        "given": ["|".join(names) for names in given],
        "suggested": [classes[j] for j in suggested[a:b].tolist()],
        "confidence": confidence[a:b].tolist(),
        "reason": [f"best of {len(names)} candidates" if len(names) > 1 else "only candidate" for names in given],
    }


def together(labels: Candidates) -> Tensor:
    """Count how often two classes stand in the same candidate set."""
    sets = labels.values.double()
    counts = (sets.T @ sets).long()
    return counts - counts.diag().diag()
