"""Figures of a model, from its logits and the true labels."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Metric = Callable[[Tensor, Tensor], float]
"""A figure from logits and true labels."""


def figure(value: float) -> float | None:
    """Return a figure as JSON can hold it: None in place of NaN, where there is nothing to measure."""
    return value if math.isfinite(value) else None


def accuracy_of(suggested: Tensor, y: Tensor) -> float:
    """Return the share of labels that are the true class."""
    return float((suggested == y).double().mean())


def accuracy(logits: Tensor, y: Tensor) -> float:
    """Return the share of examples whose highest logit is that of the true class."""
    return accuracy_of(logits.argmax(1), y)


def highest(logits: Tensor, k: int) -> Tensor:
    """Return the classes of the k highest logits per example; among equals the lower class first, unlike topk."""
    left, top = logits.clone(), []
    for _ in range(min(k, logits.shape[1])):
        top.append(left.argmax(1, keepdim=True))  # the first among equals
        left.scatter_(1, top[-1], -torch.inf)
    return torch.cat(top, 1)


def precision_at(k: int) -> Metric:
    """Return P@k: the share of the classes with the k highest logits that are present, mean over examples.

    The divisor is k even if fewer than k classes are present, or the number of classes if there are fewer than k in
    total. Among equal logits the lower class comes first. Classes not annotated for an example are skipped, and so is
    an example without annotated classes.
    """

    def precision(logits: Tensor, y: Tensor) -> float:
        judged = (y >= 0).any(1)
        logits, y = logits[judged], y[judged]
        top = highest(logits.masked_fill(y < 0, -torch.inf), k)
        places = torch.arange(top.shape[1], device=y.device) < (y >= 0).sum(1, keepdim=True)
        hits = ((y.gather(1, top) == 1) & places).sum(1)
        # Dividing last keeps whole numbers until then if everything is annotated: a single rounding.
        return float((hits * (top.shape[1] / places.sum(1).double())).sum() / top.numel())

    return precision


def mean_average_precision(logits: Tensor, y: Tensor) -> float:
    """Return mAP: the area under each class's stepwise precision-recall curve, mean over present classes; NaN if none.

    Examples with equal logits share the precision after the last of them. The curve of a class covers the examples for
    which it is annotated.
    """
    areas = []
    for c in (y == 1).any(0).nonzero().flatten().tolist():
        known = y[:, c] >= 0
        scores, order = logits[known, c].sort(descending=True)
        hits = (y[known, c][order] == 1).double()
        last = torch.searchsorted(-scores, -scores, right=True)  # the number of examples ranked at least as high
        areas.append(float((hits.cumsum(0)[last - 1] / last * hits).sum() / hits.sum()))
    return sum(areas) / len(areas) if areas else float("nan")


def auroc(logits: Tensor, y: Tensor) -> float:
    """Return the area under the ROC curve, mean over the classes with present and absent examples; NaN if none."""
    return float(class_aurocs(logits, y).nanmean())


def class_aurocs(scores: Tensor, y: Tensor) -> Tensor:
    """Return the area under each class's ROC curve over rows whose truth is known; NaN if all of them are alike."""
    from scipy.stats import rankdata

    areas = torch.full((y.shape[1],), torch.nan, dtype=torch.float64)
    for c in range(y.shape[1]):
        known = y[:, c] >= 0
        present = y[known, c] == 1
        n, m = int(present.sum()), int((~present).sum())
        if n and m:
            ranks = torch.from_numpy(rankdata(scores[known, c].double().numpy()))
            areas[c] = (ranks[present].sum() - n * (n + 1) / 2) / (n * m)
    return areas


def share(flags: Tensor) -> float | None:
    """Return the share of flags that are set; None if there are no flags."""
    return figure(float(flags.double().mean()))


ONE_CLASS: dict[str, Metric] = {"accuracy": accuracy}
SEVERAL_CLASSES: dict[str, Metric] = {"auroc": auroc, "p@1": precision_at(1)}
RANKED: dict[str, Metric] = {f"p@{k}": precision_at(k) for k in (1, 3, 5)} | {"map": mean_average_precision}
"""For examples with many classes, of which a short list is wanted."""
