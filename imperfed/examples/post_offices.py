"""Candidate sets: handwritten digits that clerks could not always read."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns
from imperfed.examples.base import DIGITS, INK, Contents, Example, digit_scans, ink_columns, unequal_sites

OFFICES = ("centre", "east", "harbour", "north")
ALIKE = {0: (6, 8), 1: (4, 7), 2: (3, 7), 3: (5, 8), 4: (1, 9), 5: (3, 6), 6: (0, 5), 7: (1, 2), 8: (3, 9), 9: (4, 8)}
"""The two digits that each one is taken for most easily."""
DOUBT, ANYTHING = 0.7, 0.1


class PostOffices(Example):
    """Candidate sets: at four post offices, clerks note every digit that a scan may show, such as `4|9`."""

    name: ClassVar[str] = "post-offices"
    labels: ClassVar[str] = "candidates"
    source: ClassVar[str] = DIGITS
    made_up: ClassVar[str] = (
        "Inputs are the ink in 4 x 4 fields of a scan. The offices are made up: each digit is shared out unevenly "
        "among them. So is the doubt: to the true digit, each of the two that look most like it is added with "
        "probability 0.7, any other with probability 0.1. The column `true_digit` is for evaluation only."
    )
    commands: ClassVar[tuple[str, ...]] = (
        "imperfed run --data {folder} --budget 1",
        "imperfed compare pfedpll,local-only+lcp --data {folder} --rounds 20",
    )

    def contents(self, draw: np.random.Generator) -> Contents:
        scans, digits = digit_scans()
        tables = {}
        for office, train, test in unequal_sites(digits, OFFICES, 1.0, draw):
            sets = ["|".join(map(str, possible(int(digit), draw))) for digit in digits[train]]
            ids = [f"{office}-{row:04}" for row in train]
            tables[f"sites/{office}.csv"] = {
                "id": ids,
                **ink_columns(scans[train]),
                "digits": sets,
                "true_digit": digits[train].tolist(),
            }
            tables[f"test/{office}.csv"] = {**ink_columns(scans[test]), "true_digit": digits[test].tolist()}
        labels = LabelColumns("candidates", tuple(map(str, range(10))), "digits", truth="true_digit")
        return Contents(
            Declaration(self.name, "sites/*.csv", id="id", test="test/*.csv", inputs=Inputs(INK), labels=labels),
            tables,
        )


def possible(digit: int, draw: np.random.Generator) -> list[int]:
    """Return the digits that a clerk holds possible, the true one among them."""
    chance = [DOUBT if other in ALIKE[digit] else ANYTHING for other in range(10)]
    return [other for other in range(10) if other == digit or draw.random() < chance[other]]
