"""`imperfed.inspect`: of rows in memory it says what it says of the same rows as files, and writes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest

import imperfed
from imperfed.census.inspect import document
from imperfed.core.errors import UsageError

TOLD = {"label": "breed", "site": "clinic", "truth": "really"}
OF_THE_FORM = ("federation", "guessed", "name", "next")
"""What differs, since one form has a file and the other has none."""


def test_the_same_rows_give_the_same_report(
    frame: pandas.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clinics").mkdir()
    frame.rename(columns={"breed": "label"}).to_csv(tmp_path / "clinics" / "all.csv", index=False)
    of_files = document(imperfed.inspect(tmp_path / "clinics"))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    of_rows = document(imperfed.inspect(data=frame, **TOLD))
    assert list(Path().iterdir()) == []
    assert {key for key in of_files if of_files[key] != of_rows[key]} <= {*OF_THE_FORM}
    assert of_rows["federation"] is None
    assert of_rows["rows"] == 80
    search, run, compare = (step["command"] for step in of_rows["next"])
    assert search == "imperfed.run(data=data, label='breed', site='clinic', truth='really')"
    assert run == "imperfed.run('pfedpll', data, label='breed', site='clinic', truth='really')"
    assert compare.startswith("imperfed.compare(['pfedpll', 'local-only+lcp'], data, ")


def test_what_is_advised_can_be_typed(frame: pandas.DataFrame, tmp_path: Path, no_page: None) -> None:
    steps = imperfed.inspect(frame, label="breed", site="clinic", test=frame.assign(breed=frame["really"])).steps
    advised = [step.command for step in steps if "pfedpll" in step.command]
    assert "test=test" in advised[0]
    names = {"imperfed": imperfed, "data": frame, "test": frame.assign(breed=frame["really"])}
    result = eval(advised[0].removesuffix(")") + f", rounds=1, workers=1, out={str(tmp_path)!r})", names)
    assert result.summary.facts.common_test_rows > 0


def test_it_prints_what_the_command_prints(frame: pandas.DataFrame) -> None:
    found = imperfed.inspect(frame, label="breed", site="clinic")
    text = str(found)
    assert repr(found).startswith("<Inspection of data: 2 sites, ")
    assert "made for" in found._repr_html_()
    assert text.startswith("Guessed from the columns. Please check:\n  labels: candidate sets in breed")
    assert "data: 2 sites, 80 rows, 3 classes; candidate sets" in text
    assert "federation.toml" not in text


def test_numbers_are_not_taken_for_the_truth(frame: pandas.DataFrame) -> None:
    """Of classes that are numbers, any column of small numbers has the values."""
    numbers = frame.assign(breed=[[0, 1, 2][: k % 2 + 2] for k in range(80)], weight=np.arange(80) % 3)
    given = numbers.drop(columns="really")
    assert imperfed.inspect(given, label="breed", site="clinic").declaration.labels.truth == ""
    named = given.assign(**{"true breed": [k % 2 for k in range(80)]})
    assert imperfed.inspect(named, label="breed", site="clinic").declaration.labels.truth == "true breed"


def test_wrong_calls(frame: pandas.DataFrame, tmp_path: Path) -> None:
    for call, message in (
        (lambda: imperfed.inspect(frame, labels="breed"), "unknown argument of inspect 'labels'. Did you mean 'label'"),
        (lambda: imperfed.inspect(frame, site="clinic"), "label=...: missing"),
        (
            lambda: imperfed.inspect(frame, **TOLD, test=0.2),
            "test=...: a setting of runs; inspect takes what",
        ),
        (lambda: imperfed.inspect(tmp_path, label="breed"), "label=...: describes data in memory"),
        (lambda: imperfed.inspect(42), "data: cannot inspect a value of type int; hand over a path, a table"),
    ):
        with pytest.raises(UsageError) as error:
            call()
        assert str(error.value).startswith(message)
