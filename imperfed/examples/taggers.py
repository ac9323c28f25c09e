"""Several positives per row: tags that people happened to note."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns
from imperfed.examples.base import DIGITS, INK, Contents, Example, digit_scans, ink_columns, unequal_sites

TAGS = {
    "even": {0, 2, 4, 6, 8},
    "prime": {2, 3, 5, 7},
    "closed-loop": {0, 6, 8, 9},
    "straight-line": {1, 4, 7},
    "above-five": {6, 7, 8, 9},
}
"""The digits that each tag is true of."""
NOTED = 0.6


class Taggers(Example):
    """Positives only, several per row: four teams tag scans; a tag that is missing may just not have been noted."""

    name: ClassVar[str] = "taggers"
    labels: ClassVar[str] = "positives"
    source: ClassVar[str] = DIGITS
    made_up: ClassVar[str] = (
        "Inputs are the ink in 4 x 4 fields of a scan. "
        "Tags follow from the digit that is shown: even, prime, and so on. The teams are made up, and so are the gaps: "
        "each true tag is noted with probability 0.6, and rows without any tag are left out. Test rows have all tags."
    )
    commands: ClassVar[tuple[str, ...]] = (
        "imperfed run --data {folder} --budget 1",
        "imperfed run fedavg+positive-softmax --data {folder} --rounds 20",
    )

    def contents(self, draw: np.random.Generator) -> Contents:
        scans, digits = digit_scans()
        teams = ("blue", "green", "red", "yellow")
        tables = {}
        for team, train, test in unequal_sites(digits, teams, 1.0, draw):
            noted = {int(row): [t for t in tags_of(digits[row]) if draw.random() < NOTED] for row in train}
            kept = np.array([row for row, tags in noted.items() if tags])
            ids = {"id": [f"{row:04}" for row in kept]}
            tables[f"sites/{team}.csv"] = (
                ids | ink_columns(scans[kept]) | {"tags": ["|".join(noted[int(row)]) for row in kept]}
            )
            known = [row for row in test if tags_of(digits[row])]
            tables[f"test/{team}.csv"] = ink_columns(scans[known]) | {
                "tags": ["|".join(tags_of(digits[row])) for row in known]
            }
        labels = LabelColumns("positives", tuple(TAGS), "tags")
        return Contents(
            Declaration(self.name, "sites/*.csv", id="id", test="test/*.csv", inputs=Inputs(INK), labels=labels),
            tables,
        )


def tags_of(digit: int) -> list[str]:
    """Return all tags that are true of a digit."""
    return [tag for tag, digits in TAGS.items() if int(digit) in digits]
