"""The labels that a run infers: one file per site, and how many are correct if the truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from imperfed.core.federation import Federation
from imperfed.core.labels import Labels
from imperfed.evaluation.evaluator import Evaluator
from imperfed.results.folder import RunFolder
from imperfed.results.label_summary import LabelSummary, ResolvedLabels
from imperfed.results.missing import judge_filled_labels


@dataclass(frozen=True)
class LabelOutcome:
    """The figures of the inferred labels, overall and per site."""

    summary: LabelSummary | None
    """None if no labels were inferred."""
    by_site: Sequence[float | None]
    """The figure of each site that goes into `SiteSummary.labels`."""


def write_labels(
    folder: RunFolder, inferred: Tensor | None, federation: Federation, evaluator: Evaluator, temperature: float = 1.0
) -> LabelOutcome:
    """Write `labels/<site>.parquet` for labels of a kind that leaves something to infer."""
    labels = federation.labels
    if inferred is None or not labels.inferable:
        return LabelOutcome(None, [None] * len(federation.sites))
    inferred = labels.tempered(inferred, temperature)
    learned = None if evaluator.annotated is None else evaluator.annotated.any(0)
    for site, (a, b) in zip(federation.sites, pairwise(federation.starts), strict=True):
        table = labels.between(a, b).label_table(federation.ids[a:b], federation.classes, inferred[a:b], learned)
        folder.save_table(f"labels/{site}.parquet", table)
    if labels.several:
        return LabelOutcome(*judge_filled_labels(inferred, federation, evaluator, learned))
    return judge_resolved_labels(inferred, federation, evaluator)


def judge_resolved_labels(inferred: Tensor, federation: Federation, evaluator: Evaluator) -> LabelOutcome:
    """Judge the one class chosen for every row, overall and per site."""
    confidence, suggested = inferred.max(1)
    mistaken = evaluator.mistaken(suggested, len(federation.classes))
    summary = ResolvedLabels(
        accuracy=evaluator.labels(0, len(suggested), suggested),
        picking_at_random=federation.labels.chance(),
        mean_confidence=float(confidence.mean()),
        n=len(suggested),
        together=tuple(map(tuple, together(federation.labels).tolist())),
        mistaken=None if mistaken is None else tuple(map(tuple, mistaken)),
    )
    return LabelOutcome(summary, [evaluator.labels(a, b, suggested[a:b]) for a, b in pairwise(federation.starts)])


def together(labels: Labels) -> Tensor:
    """Count the rows whose label names both of two different classes: int64 [C, C]."""
    counts = labels.co_occurrence()
    if counts is None:
        return torch.zeros(labels.classes, labels.classes, dtype=torch.int64)
    return counts - counts.diag().diag()
