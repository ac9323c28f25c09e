"""Gradient boosting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from imperfed.alone.base import Fitted, Real, Whole
from imperfed.alone.examples import ExampleModel
from imperfed.alone.trees import BoostedTrees, joined


@dataclass(frozen=True)
class Boosting(ExampleModel):
    """Gradient boosting of scikit-learn, on histograms."""

    name: ClassVar[str] = "boosting"
    rounds: int = 100
    rate: float = 0.1
    leaves: int = 31
    leaf: int = 20  # fewest rows in a leaf; on small sites a twentieth of the rows

    def fit_examples(self, x: Real, y: Whole, weight: Real, seed: int) -> Fitted:
        from sklearn.ensemble import HistGradientBoostingClassifier

        model = HistGradientBoostingClassifier(
            learning_rate=self.rate,
            max_iter=self.rounds,
            max_leaf_nodes=self.leaves,
            min_samples_leaf=min(self.leaf, max(2, len(x) // 20)),
            early_stopping=False,
            random_state=seed,
        )
        model.fit(x, y, sample_weight=weight)
        # scikit-learn offers no public view of these trees; a test compares what is read here with its predictions.
        rounds: list[list[Any]] = model._predictors
        start = model._baseline_prediction.ravel()
        several = len(start) > 1
        trees = [(tree.nodes, c + (not several)) for trees in rounds for c, tree in enumerate(trees)]
        return BoostedTrees(
            **joined([_plain(nodes) for nodes, _ in trees]),
            value=torch.from_numpy(np.concatenate([nodes["value"] for nodes, _ in trees]).astype(np.float64)),
            column=torch.tensor([column for _, column in trees]),
            start=torch.from_numpy(start if several else np.array([0.0, start[0]])).double(),
        )


def _plain(nodes: Any) -> dict[str, Any]:
    leaf = nodes["is_leaf"].astype(bool)
    sides = {side: np.where(leaf, -1, nodes[side].astype(np.int64)) for side in ("left", "right")}
    return {"feature": nodes["feature_idx"], "threshold": nodes["num_threshold"], **sides}
