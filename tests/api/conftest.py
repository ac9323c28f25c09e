"""Tables in memory that the tests of the Python interface share."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

CLASSES = ("cat", "dog", "fox")


@pytest.fixture
def frame() -> pandas.DataFrame:
    """Animals of two clinics, each with candidate breeds, their true breed, and an index of the caller's own."""
    draw = np.random.default_rng(0)
    true = draw.integers(0, 3, 80)
    table = {
        "age": draw.normal(size=80) + 2 * true,
        "weight": draw.integers(1, 9, 80),
        "colour": draw.choice(["red", "blue"], 80),
        "clinic": draw.choice(["north", "south"], 80),
        "breed": [";".join(sorted({CLASSES[k], CLASSES[(k + draw.integers(0, 3)) % 3]})) for k in true],
        "really": [CLASSES[k] for k in true],
    }
    return pandas.DataFrame(table, index=[f"row {i}" for i in range(80)])
