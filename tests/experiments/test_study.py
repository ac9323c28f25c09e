"""Studies: the files that say what a paper's table is made of."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest

from imperfed.core.errors import DataError, UsageError
from imperfed.experiments.config import resolve
from imperfed.experiments.study import read_study
from tests.support.terminal import QUICK, done, imperfed

FILE = """
[settings]
data = "digits"
labels.candidates = "flip"
local.steps = 2

[settings.split]
sites = 3

[[rows]]
method = "cc lr=0.02"
paper = 90

[[rows]]
method = "fedprox+cc mu=0.1"
"""


def test_a_study_is_settings_rows_and_figures(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(FILE)
    study = read_study(str(tmp_path / "mine.toml"))
    assert study.settings == {
        "data": "digits",
        "labels.candidates": "flip",
        "local.steps": 2,
        "split.sites": 3,
    }
    assert study.methods == ("cc lr=0.02", "fedprox+cc mu=0.1")
    assert study.paper == {"cc lr=0.02": 90.0}


def test_compare_makes_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)
    (tmp_path / "mine.toml").write_text(FILE)
    done("compare", "--no-alone", tmp_path / "mine.toml", *QUICK, "--set", "sites=2", "--out", tmp_path / "out")
    (folder,) = (tmp_path / "out").iterdir()
    lines = json.loads((folder / "results.json").read_text())["lines"]
    assert [(line["method"], line["paper"]) for line in lines] == [("cc lr=0.02", 90.0), ("fedprox+cc mu=0.1", None)]
    told = json.loads(next(folder.glob("cc-*/summary.json")).read_text())
    assert (told["data"], len(told["sites"])) == ("digits", 2)  # what the command line says comes last


@pytest.mark.parametrize("file", ["", "rows = 3", "[[rows]]\nname = 'cc'", "[[rows]]\nmethod = 'cc'\npaper = 'high'"])
def test_what_is_no_study_is_refused(file: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(file)
    with pytest.raises(DataError, match=r"bad\.toml: not a study; it needs \[\[rows\]\]"):
        read_study(str(tmp_path / "bad.toml"))


def test_an_unknown_study_is_refused_with_the_nearest_name() -> None:
    assert imperfed("compare", "pfedmoo.toml").code == 2
    with pytest.raises(UsageError, match=r"Did you mean 'pfedmo\.toml'"):
        read_study("pfedmoo.toml")


@pytest.mark.parametrize("name", sorted(p.name for p in resources.files("imperfed.experiments.studies").iterdir()))
def test_the_rows_of_every_study_that_comes_along_can_be_run(name: str) -> None:
    text = resources.files("imperfed.experiments.studies").joinpath(name).read_text() if name.endswith(".toml") else ""
    if "[[rows]]" not in text:
        pytest.skip("figures only")
    study = read_study(name)
    for row in study.methods:
        method, *own = row.split()
        words = dict(word.split("=") for word in own)
        config = resolve(words=study.settings | words | {"method": method})
        assert config.run.method == method.partition("+")[0]
    assert all(1 < figure <= 100 for figure in study.paper.values())
