"""Every wrong call meets one line that names the argument, and the fix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest
import scipy.sparse
import torch
from torch.utils.data import Dataset

import imperfed
from imperfed.algorithms.fedavg import FedAvg
from imperfed.core.errors import ImperfedError


class Ragged(Dataset[Any]):
    """A dataset whose images differ in size."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return torch.zeros(1, 4 + row, 4), row % 2


X, Y = np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])
Call = Callable[[pandas.DataFrame], dict[str, Any]]
TOLD = {"label": "breed", "site": "clinic"}

CALLS: list[tuple[Call, str]] = [
    (lambda f: {"data": f, "site": "clinic"}, "label=...: missing; name the column of the labels"),
    (lambda f: {"data": f, "label": "breed"}, "site=...: missing; name the column that says which site"),
    (lambda f: {"data": f, **TOLD, "label": "bred"}, "label='bred': data has no such column; did you mean 'breed'?"),
    (lambda f: {"data": f, **TOLD, "label": ["cat"]}, "label='cat': data has no such column; known: age, weight"),
    (lambda f: {"data": f, **TOLD, "site": "klinic"}, "data, column klinic: found no such column"),
    (
        lambda f: {"data": f.assign(breed=np.where(np.arange(len(f)) % 2, "cat", "dog")), **TOLD, "site": "klinic"},
        "data, column klinic: found no such column, expected one of this name; did you mean 'clinic'?",
    ),
    (lambda f: {"data": f, **TOLD, "inputs": ["agee"]}, "inputs='agee': data has no such column; did you mean 'age'?"),
    (lambda f: {"data": f, **TOLD, "attribute": "race"}, "attribute='race': data has no such column"),
    (lambda f: {"data": f, **TOLD, "id": "patient"}, "data, column patient: found no such column"),
    (lambda f: {"data": f, **TOLD, "site": f["clinic"]}, "site=...: found a value of type Series, expected the name"),
    (lambda f: {"data": f, **TOLD, "label": ["really"]}, "label=['really']: a list has one column per class, of 1, 0"),
    (lambda f: {"data": f, **TOLD, "label": []}, "label=[]: a list of no columns; name at least one"),
    (lambda f: {"data": f, **TOLD, "label": ["age", "age"]}, "label=...: found 'age' twice, expected every name once"),
    (
        lambda f: {"data": f, **TOLD, "inputs": ["age", "age"]},
        "inputs=...: found 'age' twice, expected every name once",
    ),
    (lambda f: {"data": f, **TOLD, "label": "clinic"}, "label='clinic': this column has another role already; name"),
    (
        lambda f: {"data": f, **TOLD, "inputs": ["age", "breed"]},
        "inputs='breed': this column has another role already (labels: candidate sets in breed (by its name), 3",
    ),
    (
        lambda f: {"data": {"a": f, "b": f.drop(columns="age")}, "label": "breed", "inputs": ["age"]},
        "inputs='age': data['b'] has no such column; known: weight",
    ),
    (
        lambda f: {"data": f[["clinic", "breed"]].assign(v=[[1.0, 2.0]] * len(f)), **TOLD},
        "data: no column can be an input (left out: v; neither numbers nor a few words); for the vectors in v, hand",
    ),
    (lambda f: {"data": f[["clinic", "breed"]], **TOLD}, "data: no column can be an input (there is no other column)"),
    (
        lambda f: {"data": f.assign(age=pandas.Timestamp("2020-01-01")), **TOLD, "inputs": {"numeric": ["age"]}},
        "data, column age: found a column of timestamp[us], expected one number per row; convert it, such as a date to",
    ),
    (lambda f: {"data": f, **TOLD, "kind": "candidate"}, "kind=...: found 'candidate', expected one of annotated"),
    (lambda f: {"data": f, **TOLD, "classes": "cat"}, "classes=...: found 'cat', expected a list of names"),
    (lambda f: {"data": f, **TOLD, "kind": f["breed"]}, "kind=...: found a value of type Series, expected a text"),
    (lambda f: {"data": f.assign(breed="cat"), **TOLD}, "classes=...: found 1 name, expected at least 2; list all of"),
    (lambda f: {"data": f, **TOLD, "classes": f}, "classes=...: found "),
    (lambda f: {"data": f, **TOLD, "separator": ""}, "separator=...: found an empty text, expected a text; change the"),
    (lambda f: {"data": f, **TOLD, "name": 3}, "name=...: found a value of type int, expected a text; change the"),
    (lambda f: {"data": f, **TOLD, "missing": ["?"]}, "missing=...: found candidates labels, expected annotated ones"),
    (lambda f: {"data": f, **TOLD, "sites": 5}, "split.sites = 5: the sites and their rows of data are fixed by its"),
    (lambda f: {"data": f["age"], **TOLD}, "data: cannot read a Series as a table"),
    (lambda f: {"data": polars.from_pandas(f).lazy(), **TOLD}, "data: a table that is not computed yet; hand over"),
    (lambda f: {"data": f.assign(**{" age": 1}), **TOLD}, "data: 2 columns are called 'age'; rename all but one"),
    (
        lambda f: {"data": f.assign(age=np.where(np.arange(len(f)) == 3, np.nan, f["age"])), **TOLD, "inputs": ["age"]},
        "data, row 3, column age: found a blank, expected a finite number; train with inputs={'numeric': [...], 'fill'",
    ),
    (lambda f: {"data": {"a": f, "b": f[:0]}, "label": "breed"}, "data['b']: no rows; hand over at least one"),
    (lambda f: {"data": {"a": f}, **TOLD}, "site='clinic': the sites are named by the keys of data; leave it out"),
    (lambda f: {"data": {"a/b": f}, "label": "breed"}, "data=...: found 'a/b', which cannot be the name of a file"),
    (lambda f: {"data": {"a": [1], "b": [2]}}, "data: a dict of columns; make a table of it"),
    (lambda f: {"data": {}}, "data={}: no sites; hand over a table"),
    (lambda f: {"data": f.groupby("clinic"), "label": "breed"}, "data: cannot read a value of type DataFrameGroupBy"),
    (lambda f: {"data": 42}, "data: cannot read a value of type int; hand over the name of a dataset, a path"),
    (lambda f: {"data": X}, "data: cannot read a value of type ndarray; hand over a table"),
    (lambda f: {"data": (X, Y)}, "data: arrays of no site; hand over {site: (x, labels)}, one pair per site"),
    (lambda f: {"data": {"a": (X, Y)}, "label": "y"}, "label=...: arrays have no columns; leave it out"),
    (lambda f: {"data": {"a": (X, Y[:3])}}, "data['a']: 4 rows of x, 3 rows of labels; hand over as many of each"),
    (
        lambda f: {"data": {"a": (X, Y[:, None])}},
        "data['a']: labels of shape (4, 1); for one class per row, hand over labels.ravel(), and for marks",
    ),
    (
        lambda f: {"data": {"a": (X, f[["breed", "age"]][:4])}},
        "data['a'], labels: 2 columns, not all of numbers; hand over one column of classes, or one per class, of 1, 0",
    ),
    (
        lambda f: {"data": {"a": (X, Y, Y), "b": (X, Y)}},
        "data['b']: no truth, which other sites have; hand over (x, labels, truth) for all or none",
    ),
    (lambda f: {"data": {"a": (X[0], Y)}}, "data['a'], x: found float32 of shape (2,), expected numbers"),
    (
        lambda f: {"data": {"a": (scipy.sparse.csr_matrix(X), Y)}},
        "data['a'], x: a sparse matrix; hand over a dense one",
    ),
    (lambda f: {"data": {"a": (torch.tensor(X).to_sparse(), Y)}}, "data['a'], x: a sparse matrix; hand over a dense"),
    (lambda f: {"data": {1: (X, Y), "1": (X, Y)}}, "data: two sites are called '1'; rename one of them"),
    (lambda f: {"data": {"a": Ragged()}}, "data['a']: inputs of different shapes, such as (1, 4, 4), (1, 5, 4)"),
    (lambda f: {"data": "digits", "label": "breed"}, "label=...: describes data in memory; for a dataset or files"),
    (lambda f: {"data": f, "label": f["breed"], "site": "clinic"}, "label=...: found a value of type Series, expected"),
    (lambda f: {"data": f, "label": "age", "site": "clinic"}, "data, column age: found 80 different numbers, expected"),
    (lambda f: {"data": f, **TOLD, "test": "test.csv"}, "test: cannot read a value of type str; hand over a table"),
    (lambda f: {"data": f, **TOLD, "on_round": 5}, "on_round: expected a function of a round's report; got a value of"),
    (lambda f: {"data": f, **TOLD, "out": 3}, "out: expected a path; got a value of type int"),
    (
        lambda f: {"method": f, **TOLD},
        "method: expected the name of a method, package.module:Class, an instance or a class of Algorithm or "
        "Objective; got a value of type DataFrame; data come after the method, or by name: data=...",
    ),
    (lambda f: {"method": torch.nn.Linear(1, 1), "data": f, **TOLD}, "method: expected the name of a method"),
]


@pytest.mark.parametrize(("call", "message"), CALLS, ids=[message[:30] for _, message in CALLS])
def test_a_wrong_call_names_the_argument_and_the_fix(
    call: Call, message: str, frame: pandas.DataFrame, tmp_path: Path
) -> None:
    keywords = {"method": "pfedpll", "out": tmp_path / "runs", **call(frame)}
    with pytest.raises(ImperfedError) as error:
        imperfed.run(**keywords)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        (3, "seeds=3: expected whole numbers in a list, such as [0, 1, 2]"),
        ((0.5,), "seeds=(0.5,): expected whole numbers in a list"),
        ((), "no seed was named; give at least one, such as 0"),
        ((0, 1, 0), "a seed is named twice, which would count one run twice; got 0, 1, 0"),
    ],
)
def test_wrong_seeds_of_a_comparison_are_named(
    seeds: Any, message: str, frame: pandas.DataFrame, tmp_path: Path
) -> None:
    with pytest.raises(ImperfedError) as error:
        imperfed.compare(["pfedpll"], frame, seeds, tmp_path / "runs", truth="really", **TOLD)
    assert str(error.value).startswith(message)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ("fedavg", "methods='fedavg': one text; hand over a list of names"),
        (FedAvg(), "methods: expected several in a list; got a value of type FedAvg"),
        ([], "methods=[]: nothing to compare; name at least one"),
    ],
)
def test_methods_that_are_no_list_are_named(methods: Any, message: str, frame: pandas.DataFrame) -> None:
    with pytest.raises(ImperfedError) as error:
        imperfed.compare(methods, frame, truth="really", **TOLD)
    assert str(error.value).startswith(message)


def test_a_wrong_cell_is_named_by_table_row_and_column(frame: pandas.DataFrame, tmp_path: Path) -> None:
    frame["age"] = frame["age"].astype(object)
    frame.iloc[3, 0] = "old"
    with pytest.raises(ImperfedError, match=r"^data\['north'\], row 3, column age: found 'old', expected a finite"):
        imperfed.run("pfedpll", {"north": frame}, tmp_path, label="breed", inputs=["age", "weight"])
