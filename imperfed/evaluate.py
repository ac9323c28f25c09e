"""Figures of models and of worked-out labels. The only reader of the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

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


def precision_at(k: int) -> Metric:
    """P@k: the share of the k highest logits of an example that are classes present, mean over examples.

    Divided by k also where fewer classes than k are present; with fewer than k classes in all, by their number.
    """

    def precision(logits: Tensor, y: Tensor) -> float:
        return float(y.gather(1, logits.topk(min(k, y.shape[1])).indices).double().mean())

    return precision


def mean_average_precision(logits: Tensor, y: Tensor) -> float:
    """mAP: area under each class's precision-recall curve, in steps, mean over the classes present; NaN if none is.

    Examples of equal logit stand together: their precision is that after the last of them.
    """
    areas = []
    for c in y.any(0).nonzero().flatten().tolist():
        scores, order = logits[:, c].sort(descending=True)
        hits = y[order, c].double()
        last = torch.searchsorted(-scores, -scores, right=True)  # examples ranked at least as high
        areas.append(float((hits.cumsum(0)[last - 1] / last * hits).sum() / hits.sum()))
    return sum(areas) / len(areas) if areas else float("nan")


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
SEVERAL_CLASSES: dict[str, Metric] = {"auroc": auroc, "p@1": precision_at(1)}
RANKED: dict[str, Metric] = {f"p@{k}": precision_at(k) for k in (1, 3, 5)} | {"map": mean_average_precision}
"""Of many classes an example, of which a short list is wanted."""


VALIDATION = "validation "
"""Before the name of a figure on validation rows."""


def _metrics(y: Tensor) -> dict[str, Metric]:
    return ONE_CLASS if y.ndim == 1 else SEVERAL_CLASSES


@dataclass(frozen=True)
class Evaluator:
    """Figures by name, from an oracle that nobody else may read."""

    oracle: Oracle

    @property
    def sites(self) -> int:
        """The number of sites with a test set of their own."""
        return len(self.oracle.test_x)

    @property
    def metric(self) -> str:
        """The name of the figure that tables lead with."""
        return next(iter(self._common if not self.sites else _metrics(self.oracle.test_y[0])))

    @property
    def _common(self) -> dict[str, Metric]:
        y = self.oracle.common_y if self.oracle.common_y is not None else self.oracle.validation_y
        several = y is not None and y.ndim > 1
        return RANKED if several and not self.sites else _metrics(y) if y is not None else ONE_CLASS

    def site(self, site: int, net: Net) -> Scores:
        """Figures of a network on one site's own test set."""
        y = self.oracle.test_y[site]
        return _scores(net, self.oracle.test_x[site], y, _metrics(y))

    def common(self, net: Net) -> Scores:
        """Figures of a network on the test set of no site in particular; empty where there is none.

        Those on validation rows are called so; settings are chosen by them.
        """
        scores: Scores = {}
        for prefix, x, y in (
            ("", self.oracle.common_x, self.oracle.common_y),
            (VALIDATION, self.oracle.validation_x, self.oracle.validation_y),
        ):
            if x is not None and y is not None:
                scores |= {f"{prefix}{name}": score for name, score in _scores(net, x, y, self._common).items()}
        return scores

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
def _scores(net: Net, x: Tensor, y: Tensor, metrics: dict[str, Metric]) -> Scores:
    logits = torch.cat([net(part) for part in x.split(1024)])
    return {name: (metric(logits, y), len(y)) for name, metric in metrics.items()}
