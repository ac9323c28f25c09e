"""Columns are named as pandas names them: by text, by whole numbers, by tuples, and by a list or an index of these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest

from imperfed.api.column_names import with_names
from imperfed.core.errors import UsageError

COLUMNS = ("age", "weight", "3", "('y', 'breed')")


@pytest.mark.parametrize(
    ("argument", "given", "name"),
    [
        ("label", 3, "3"),
        ("site", np.int64(3), "3"),
        ("label", ("y", "breed"), "('y', 'breed')"),
        ("label", ("age", "weight"), ["age", "weight"]),
        ("label", [("y", "breed"), 3], ["('y', 'breed')", "3"]),
        ("truth", " age ", "age"),
        ("inputs", "age", ["age"]),
        ("inputs", [3, "age "], ["3", "age"]),
        ("inputs", pandas.Index(["age", "weight"]), ["age", "weight"]),
        ("inputs", np.array(["age", "weight"]), ["age", "weight"]),
        ("inputs", {"numeric": ["age"]}, {"numeric": ["age"]}),
        ("attribute", {"column": "age"}, {"column": "age"}),
    ],
)
def test_names_are_those_of_tables(argument: str, given: Any, name: Any) -> None:
    assert with_names({argument: given, "kind": "exact"}, COLUMNS) == {argument: name, "kind": "exact"}


@pytest.mark.parametrize("argument", ["label", "site", "id", "group", "truth", "attribute", "inputs"])
@pytest.mark.parametrize("values", [pandas.Series(["a", "b"]), True, 1.5, object(), [["a"]]])
def test_values_instead_of_a_name_are_refused(argument: str, values: Any) -> None:
    message = rf"{argument}=...: found a value of type {type(values).__name__}, expected the name of a column of data"
    with pytest.raises(UsageError, match=message):
        with_names({argument: values}, COLUMNS)
