"""Random forests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from imperfed.alone.base import Fitted, Real, Whole
from imperfed.alone.examples import ExampleModel
from imperfed.alone.trees import AveragedTrees, joined
from imperfed.core.labels import Labels


@dataclass(frozen=True)
class Forest(ExampleModel):
    """A random forest of scikit-learn."""

    name: ClassVar[str] = "forest"
    trees: int = 200
    leaf: int = 1  # fewest rows in a leaf

    @classmethod
    def grid(cls, kind: type[Labels], shape: tuple[int, ...]) -> tuple[Any, ...]:
        return (cls(leaf=1), cls(leaf=5))

    def fit_examples(self, x: Real, y: Whole, weight: Real, seed: int) -> Fitted:
        from sklearn.ensemble import RandomForestClassifier

        model = RandomForestClassifier(self.trees, min_samples_leaf=self.leaf, random_state=seed)
        # The forest compares in float32; so that the stored trees agree with it, rows are rounded before it sees them.
        model.fit(x.astype(np.float32), y, sample_weight=weight)
        trees = [tree.tree_ for tree in model.estimators_]
        nodes = [
            {"feature": t.feature, "threshold": t.threshold, "left": t.children_left, "right": t.children_right}
            for t in trees
        ]
        counts = np.concatenate([t.value[:, 0, :] for t in trees])
        share = counts / counts.sum(1, keepdims=True)
        return AveragedTrees(**joined(nodes), share=torch.from_numpy(share).float())
