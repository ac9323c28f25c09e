"""Wrong labels: three labs, one careful, one hasty, one careless."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns
from imperfed.examples.base import DIGITS, INK, Contents, Example, digit_scans, ink_columns, unequal_sites

WRONG = {"careful": 0.02, "careless": 0.4, "hasty": 0.2}
"""The share of labels that each lab has wrong."""


class Labs(Example):
    """Wrong labels: three labs label scans of digits, and have 2, 20 and 40 per cent of the labels wrong."""

    name: ClassVar[str] = "labs"
    labels: ClassVar[str] = "exact"
    source: ClassVar[str] = DIGITS
    made_up: ClassVar[str] = (
        "Inputs are the ink in 4 x 4 fields of a scan. "
        "The labs are made up, and so are their mistakes: such a share of each lab's labels is replaced by another "
        "digit, drawn evenly. The column `true_digit` is for evaluation only. The files are Parquet."
    )
    commands: ClassVar[tuple[str, ...]] = (
        "imperfed audit {folder}",
        "imperfed run --data {folder} --budget 1",
        "imperfed repair {folder} --out {folder}-repaired",
    )

    def contents(self, draw: np.random.Generator) -> Contents:
        scans, digits = digit_scans()
        tables = {}
        for lab, train, test in unequal_sites(digits, tuple(WRONG), 5.0, draw):
            given = mislabelled(digits[train], WRONG[lab], draw)
            tables[f"sites/{lab}.parquet"] = {
                "id": [f"{lab}-{row:04}" for row in train],
                **ink_columns(scans[train]),
                "digit": given.tolist(),
                "true_digit": digits[train].tolist(),
            }
            tables[f"test/{lab}.parquet"] = ink_columns(scans[test]) | {"true_digit": digits[test].tolist()}
        labels = LabelColumns("exact", tuple(map(str, range(10))), "digit", truth="true_digit")
        return Contents(
            Declaration(
                self.name, "sites/*.parquet", id="id", test="test/*.parquet", inputs=Inputs(INK), labels=labels
            ),
            tables,
        )


def mislabelled(digits: npt.NDArray[np.int64], share: float, draw: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the digits with this share of them replaced by another one."""
    wrong = draw.permutation(len(digits))[: round(share * len(digits))]
    given = digits.copy()
    given[wrong] = (digits[wrong] + draw.integers(1, 10, len(wrong))) % 10
    return given
