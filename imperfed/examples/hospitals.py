"""Missing labels: findings about tumours that not every hospital reads, with blanks."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns
from imperfed.examples.base import Contents, Example, unequal_sites

READS = {
    "aachen": ("malignant", "large_cells"),
    "bergen": ("malignant", "uneven_outline"),
    "coimbra": ("large_cells", "uneven_outline", "rough_texture"),
}
"""The findings that each hospital reads."""
FINDINGS = ("malignant", "large_cells", "uneven_outline", "rough_texture")
MEASURED = {"large_cells": "worst radius", "uneven_outline": "worst concavity", "rough_texture": "worst texture"}
"""Each finding is what the quarter of all rows with the highest values of this column have."""
SKIPPED = 0.15


class Hospitals(Example):
    """Missing labels: three hospitals measure the same tumour cells, but each reads only some of four findings."""

    name: ClassVar[str] = "hospitals"
    labels: ClassVar[str] = "annotated"
    source: ClassVar[str] = "the breast cancer data of scikit-learn (569 tumours, Wisconsin)"
    made_up: ClassVar[str] = (
        "Inputs are the ten means over a tumour's cells. `malignant` is the diagnosis; the other findings are made "
        "from the most extreme cells: radius, concavity or texture among the highest quarter. The hospitals are made "
        "up, and so are the blanks: a hospital never fills in the findings it does not read, and leaves out 15 % of "
        "the others."
    )
    commands: ClassVar[tuple[str, ...]] = (
        "imperfed run --data {folder} --budget 1",
        "imperfed run fedpsl --data {folder} --rounds 20 --set lr=0.01",
    )

    def contents(self, draw: np.random.Generator) -> Contents:
        inputs, truth = measurements()
        tables = {}
        malignant = truth[:, 0].astype(np.int64)
        for hospital, train, test in unequal_sites(malignant, tuple(READS), 5.0, draw):
            read = np.isin(FINDINGS, READS[hospital]) & (draw.random((len(train), len(FINDINGS))) >= SKIPPED)
            marks = np.where(read, truth[train].astype(int).astype(str), "")
            ids = {"id": [f"{hospital}-{row:03}" for row in train]}
            found = dict(zip(FINDINGS, marks.T.tolist(), strict=True))
            tables[f"sites/{hospital}.csv"] = ids | _columns(inputs, train) | found
            known = dict(zip(FINDINGS, truth[test].astype(int).T.tolist(), strict=True))
            tables[f"test/{hospital}.csv"] = _columns(inputs, test) | known
        declaration = Declaration(
            self.name,
            "sites/*.csv",
            id="id",
            test="test/*.csv",
            inputs=Inputs(tuple(inputs)),
            labels=LabelColumns("annotated", FINDINGS, columns=FINDINGS),
        )
        return Contents(declaration, tables)


def measurements() -> tuple[dict[str, npt.NDArray[np.float64]], npt.NDArray[np.bool_]]:
    """Return the means over each tumour's cells by column, and which findings it has, [n, findings]."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    columns = dict(zip(data.feature_names.tolist(), data.data.T, strict=True))
    means = {name.replace(" ", "_"): values for name, values in columns.items() if name.startswith("mean ")}
    high = [columns[column] > np.quantile(columns[column], 0.75) for column in MEASURED.values()]
    return means, np.stack([data.target == 0, *high], 1)


def _columns(inputs: dict[str, npt.NDArray[np.float64]], rows: npt.NDArray[np.int64]) -> dict[str, list[object]]:
    return {name: values[rows].tolist() for name, values in inputs.items()}
