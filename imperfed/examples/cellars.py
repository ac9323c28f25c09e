"""Exact labels: small sites with a clean table."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns
from imperfed.examples.base import Contents, Example, unequal_sites

CULTIVARS = ("first", "second", "third")


class Cellars(Example):
    """Exact labels: three cellars know the grape of every wine that they analysed; the sites are small."""

    name: ClassVar[str] = "cellars"
    labels: ClassVar[str] = "exact"
    source: ClassVar[str] = "the wine data of scikit-learn (178 wines of three cultivars, 13 measurements)"
    made_up: ClassVar[str] = (
        "The labels are as in the data; only the cellars are made up, with unequal shares of grapes."
    )
    commands: ClassVar[tuple[str, ...]] = (
        "imperfed run --data {folder} --budget 1",
        "imperfed compare fedavg,local-only --data {folder} --rounds 20",
    )

    def contents(self, draw: np.random.Generator) -> Contents:
        from sklearn.datasets import load_wine

        wine = load_wine()
        names = [name.replace("/", "_") for name in wine.feature_names]
        tables = {}
        for cellar, train, test in unequal_sites(wine.target.astype(np.int64), ("hill", "river", "valley"), 1.5, draw):
            for folder, rows in (("sites", train), ("test", test)):
                ids = {"id": [f"{cellar}-{row:03}" for row in rows]}
                measured = dict(zip(names, wine.data[rows].T.tolist(), strict=True))
                tables[f"{folder}/{cellar}.csv"] = ids | measured | {"grape": [CULTIVARS[c] for c in wine.target[rows]]}
        labels = LabelColumns("exact", CULTIVARS, "grape")
        return Contents(
            Declaration(
                self.name, "sites/*.csv", id="id", test="test/*.csv", inputs=Inputs(tuple(names)), labels=labels
            ),
            tables,
        )
