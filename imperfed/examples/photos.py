"""Images in folders by class, without a table."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns
from imperfed.examples.base import Contents, Example, digit_scans, unequal_sites

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
ROWS = 800


class Photos(Example):
    """Images in folders: four people sorted PNG files of handwritten digits into one folder per class."""

    name: ClassVar[str] = "photos"
    labels: ClassVar[str] = "exact"
    source: ClassVar[str] = "the handwritten digits of scikit-learn (the first 800 scans of 8 x 8 pixels)"
    made_up: ClassVar[str] = (
        "Labels are as in the data; the people are made up, each with unequal shares of the digits. `new/` holds ten "
        "of the test images once more, in no order, to predict."
    )
    commands: ClassVar[tuple[str, ...]] = (
        "imperfed run --data {folder} --budget 1",
        "imperfed compare fedavg,local-only --data {folder} --model cnn --rounds 10",
    )

    def contents(self, draw: np.random.Generator) -> Contents:
        scans, digits = digit_scans()
        scans, digits = scans[:ROWS], digits[:ROWS]
        pictures = (scans * 255 // 16).astype(np.uint8)
        images, tested = {}, []
        for person, train, test in unequal_sites(digits, ("ada", "emil", "ines", "omar"), 1.0, draw):
            for folder, rows in (("sites", train), ("test", test)):
                for row in rows:
                    images[f"{folder}/{person}/{NAMES[digits[row]]}/{row:03}.png"] = pictures[row]
            tested += test.tolist()
        for row in draw.permutation(tested)[:10]:
            images[f"new/{row:03}.png"] = pictures[row]
        declaration = Declaration(
            self.name,
            "sites/*",
            test="test/*",
            inputs=Inputs(size=(8, 8), channels=1),
            labels=LabelColumns("exact", tuple(sorted(NAMES))),
        )
        return Contents(declaration, images=images)
