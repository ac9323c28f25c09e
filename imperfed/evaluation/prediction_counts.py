"""What models predict for test rows, as counts that add up over sites: which class for which, and how sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BINS = 10
"""Equal parts of 0 .. 1 into which predictions are sorted by their confidence."""
NUMBER, SURE, RIGHT = 0, 1, 2
"""Columns of `PredictionCounts.bins`."""


@dataclass(frozen=True)
class PredictionCounts:
    """Predictions for the test rows of one site, or of several together."""

    confusion: Tensor | None
    """[true class, predicted class]: rows; None where a row may have several classes."""
    bins: Tensor
    """[bin, 3], float64: the number of predictions of such confidence, the sum of confidences, how many are right."""

    @classmethod
    def of_rows(cls, probability: Tensor, predicted: Tensor, y: Tensor) -> PredictionCounts:
        """Count rows of one class each; `predicted`: the class predicted for each."""
        classes = probability.shape[1]
        confusion = torch.bincount(y * classes + predicted, minlength=classes * classes).view(classes, classes)
        confidence = probability.gather(1, predicted[:, None]).flatten()
        return cls(confusion, in_bins(confidence, predicted == y))

    @classmethod
    def of_cells(cls, probability: Tensor, y: Tensor, learned: Tensor) -> PredictionCounts:
        """Count cells whose truth is known (1 present, 0 absent), of classes that were `learned`, bool [C]."""
        known = (y >= 0) & learned
        present = probability >= 0.5
        confidence = torch.where(present, probability, 1 - probability)
        return cls(None, in_bins(confidence[known], (present == (y == 1))[known]))


def in_bins(confidence: Tensor, right: Tensor) -> Tensor:
    """Sort predictions into bins (low, high] of confidence; return the number, sum of confidences and hits of each."""
    values = confidence.double()
    place = ((values * BINS).ceil().long() - 1).clamp(0, BINS - 1)
    columns = (torch.ones_like(values), values, right.double())
    return torch.stack([torch.zeros(BINS, dtype=torch.float64).index_add(0, place, one) for one in columns], 1)


def pooled(sites: Sequence[PredictionCounts], same_rows: bool = False) -> PredictionCounts | None:
    """Return the counts of all sites together, each row once; None if there are no sites.

    With `same_rows`, where all sites are tested on the same rows, it is the mean over the sites' models.
    """
    if not sites:
        return None
    each = 1 / len(sites) if same_rows else 1.0
    matrices = [one.confusion for one in sites if one.confusion is not None]
    confusion = torch.stack(matrices).double().sum(0) * each if matrices else None
    return PredictionCounts(confusion, torch.stack([one.bins for one in sites]).sum(0) * each)


def calibration_error(bins: Tensor) -> float:
    """Return the expected calibration error: over bins by their size, how far confidence is from the share right."""
    total = float(bins[:, NUMBER].sum())
    return float((bins[:, RIGHT] - bins[:, SURE]).abs().sum()) / total if total else float("nan")
