"""Figures of models and of worked-out labels. The only reader of the truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from imperfed.fairness import Between, summary
from imperfed.network import Net
from imperfed.oracle import Oracle

Scores = dict[str, tuple[float, int]]
Metric = Callable[[Tensor, Tensor], float]


def accuracy_of(suggested: Tensor, y: Tensor) -> float:
    """Share of labels that are the true class."""
    return float((suggested == y).double().mean())


def accuracy(logits: Tensor, y: Tensor) -> float:
    """Share of examples whose highest logit is the true class."""
    return accuracy_of(logits.argmax(1), y)


def precision_at_1(logits: Tensor, y: Tensor) -> float:
    """Share of examples whose highest logit is one of the classes present."""
    return float(y.gather(1, logits.argmax(1, keepdim=True)).double().mean())


def auroc(logits: Tensor, y: Tensor) -> float:
    """Area under the ROC curve, mean over the classes that have both present and absent examples; NaN if none has."""
    from scipy.stats import rankdata

    areas = []
    for c in range(y.shape[1]):
        present = y[:, c].bool()
        n, m = int(present.sum()), int((~present).sum())
        if n and m:
            ranks = torch.from_numpy(rankdata(logits[:, c].double().numpy()))
            areas.append((float(ranks[present].sum()) - n * (n + 1) / 2) / (n * m))
    return sum(areas) / len(areas) if areas else float("nan")


ONE_CLASS: dict[str, Metric] = {"accuracy": accuracy}
SEVERAL_CLASSES: dict[str, Metric] = {"auroc": auroc, "p@1": precision_at_1}


def _metrics(y: Tensor) -> dict[str, Metric]:
    return ONE_CLASS if y.ndim == 1 else SEVERAL_CLASSES


@dataclass(frozen=True)
class Evaluator:
    """Figures by name, from an oracle that nobody else may read."""

    oracle: Oracle
    between: Between | None = None
    """Whom fairness is measured between, where it is."""

    @property
    def sites(self) -> int:
        """The number of sites with a test set of their own."""
        return len(self.oracle.test_x)

    @property
    def metric(self) -> str:
        """The name of the figure that tables lead with."""
        return next(iter(_metrics(self.oracle.test_y[0])))

    def site(self, site: int, net: Net) -> Scores:
        """Figures of a network on one site's own test set."""
        x, y, groups = self.oracle.test_x[site], self.oracle.test_y[site], self.oracle.test_group
        logits = _logits(net, x)
        fair = {}
        if self.between is not None:
            fair = self.between.scores(x, y, logits.argmax(1), groups[site] if groups else None)
        return _scores(logits, y) | fair

    def common(self, net: Net) -> Scores:
        """Figures of a network on the test set of no site in particular; empty where there is none."""
        if self.oracle.common_x is None or self.oracle.common_y is None:
            return {}
        return _scores(_logits(net, self.oracle.common_x), self.oracle.common_y)

    def fairness(self, sites: Sequence[Scores], seed: int) -> dict[str, Any]:
        """Fairness on the test rows of all sites together, from their figures; empty where it is not measured."""
        return {} if self.between is None else summary(self.between, sites, seed)

    def labels(self, start: int, stop: int, suggested: Tensor) -> float | None:
        """Share of the labels worked out for these training rows that are true; None where truth is unknown."""
        truth = self.oracle.truth
        return None if truth is None else accuracy_of(suggested, truth[start:stop])

    def mistaken(self, suggested: Tensor, classes: int) -> list[list[int]] | None:
        """How often each true class (row) was taken for each other (column); None where truth is unknown."""
        if self.oracle.truth is None:
            return None
        wrong = self.oracle.truth != suggested
        pairs = self.oracle.truth[wrong] * classes + suggested[wrong]
        counts: list[list[int]] = torch.bincount(pairs, minlength=classes * classes).view(classes, classes).tolist()
        return counts


@torch.no_grad()
def _logits(net: Net, x: Tensor) -> Tensor:
    return torch.cat([net(part) for part in x.split(1024)])


def _scores(logits: Tensor, y: Tensor) -> Scores:
    return {name: (metric(logits, y), len(y)) for name, metric in _metrics(y).items()}
