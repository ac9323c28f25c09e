"""One positive class per site: devices that know only the digit they were set up for."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns
from imperfed.examples.base import DIGITS, INK, Columns, Contents, Example, digit_scans, ink_columns


class Keypads(Example):
    """Positives only, one class per site: ten devices, each of which saw a single digit written, and no other."""

    name: ClassVar[str] = "keypads"
    labels: ClassVar[str] = "positive"
    source: ClassVar[str] = DIGITS
    made_up: ClassVar[str] = (
        "Inputs are the ink in 4 x 4 fields of a scan. "
        "The devices are made up: every row of a digit lies at one of them, so that no site has a row of another "
        "class. A device alone can learn nothing; its file says which digit is there, never which one is not."
    )
    commands: ClassVar[tuple[str, ...]] = (
        "imperfed run fedalc --data {folder} --rounds 20",
        "imperfed compare fedalc,fedaws,fedavg+positive-hinge --data {folder} --rounds 20",
    )

    def contents(self, draw: np.random.Generator) -> Contents:
        scans, digits = digit_scans()
        order = draw.permutation(len(scans))
        test, train = np.sort(order[:360]), np.sort(order[360:])
        rows = [train[digits[train] == digit] for digit in range(10)]
        tables: dict[str, Columns] = {
            f"sites/keypad-{digit}.csv": {
                "id": [f"{row:04}" for row in own],
                **ink_columns(scans[own]),
                "digit": [digit] * len(own),
            }
            for digit, own in enumerate(rows)
        }
        tables["test.csv"] = {**ink_columns(scans[test]), "digit": digits[test].tolist()}
        labels = LabelColumns("positive", tuple(map(str, range(10))), "digit")
        return Contents(
            Declaration(self.name, "sites/*.csv", id="id", test="test.csv", inputs=Inputs(INK), labels=labels),
            tables,
        )
