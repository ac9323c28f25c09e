"""Studies: the files that say what a paper's table is made of, and the figures and settings that they hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from imperfed.cli.typed_words import configs
from imperfed.core.errors import DataError, UsageError
from imperfed.experiments.reproduction.measures import measure
from imperfed.experiments.study import Study, one_column, paper_figures, read_study, studies
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
    methods, settings, paper = one_column(read_study(str(tmp_path / "mine.toml")))
    assert settings == {"data": "digits", "labels.candidates": "flip", "local.steps": 2, "split.sites": 3}
    assert methods == ("cc lr=0.02", "fedprox+cc mu=0.1")
    assert paper == {"cc lr=0.02": 90.0}


def test_a_column_has_settings_of_its_own_and_fills_in_the_rows(tmp_path: Path) -> None:
    columns = '\n[columns.few]\nsettings = { "local.steps" = 1 }\nfill = { lr = 0.5 }\npaper = { one = [3, 4] }\n'
    text = FILE.replace('method = "cc lr=0.02"\npaper = 90', 'name = "one"\nmethod = "cc lr={lr}"') + columns
    (tmp_path / "mine.toml").write_text(text)
    study = read_study(str(tmp_path / "mine.toml"))
    (few,) = study.columns
    assert study.method(study.rows[0], few) == "cc lr=0.5"
    assert (study.words(few)["local.steps"], study.words(few)["data"]) == (1, "digits")
    assert few.paper == {"one": (3.0, 4.0)}
    with pytest.raises(UsageError, match="Did you mean 'few'"):
        study.column("fwe")


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


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[columns.a]\npaper = { rc = 1 }", "column a has a figure for 'rc', which is no row"),
        ("[columns.a]\nseting = 1", "unknown entry of column a: 'seting'"),
        ("[columns.'a, b']\nsettings = {}", "column 'a, b' has a comma in its name"),
        ("[[rows]]\nmethod = 'cc'", "several rows are named 'cc'"),
        ("[[rows]]\nmethod = 'rc'\npapr = 3", "unknown entry of a row: 'papr'"),
    ],
)
def test_slips_in_a_study_are_named(more: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[[rows]]\nmethod = 'cc'\n" + more)
    with pytest.raises(DataError, match=message):
        read_study(str(tmp_path / "bad.toml"))


def test_an_unknown_study_is_refused_with_the_nearest_name() -> None:
    assert imperfed("compare", "pfedmo/table-3.3.toml").code == 2
    with pytest.raises(UsageError, match=r"Did you mean 'pfedmo/table-3\.2'"):
        read_study("pfedmo/table-3.3")
    with pytest.raises(UsageError, match="7 columns: imperfed reproduce makes such a table"):
        one_column(read_study("pfedmo/table-3.2"))


# -- those that come along ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("study", studies().values(), ids=lambda study: study.name)
def test_every_cell_of_every_study_can_be_run(study: Study) -> None:
    assert all(measure(name).title for name in study.measures)
    assert study.title
    assert study.place
    assert study.no_data or study.program or study.runnable
    for column in () if study.program else study.runnable:
        make = configs(study.words(column))
        for row in study.rows:
            make(study.method(row, column), 0)
    if any(name.startswith("delta ") for name in study.measures):
        assert study.reference
        assert {name.removeprefix("delta ") for name in study.measures if "delta" in name} <= set(study.measures)


PRINTED = {
    "fairness/table-5.1": (204, 4906.854),
    "fairness/table-5.2": (51, 321.922),
    "fedalc/table-3": (32, 11486.25),
    "fedalc/table-5": (36, 23566.45),
    "fedalc/table-6": (15, 2317.61),
    "fedalc/table-6-lambda": (36, 21946.21),
    "fedalc/table-6-rivals": (15, 1611.28),
    "fedalc/table-7": (18, 5168.18),
    "fedpsl/table-2": (36, 47741.4),
    "fedpsl/table-4": (12, 6197.4),
    "fedpsl/table-5": (12, 5733.2),
    "fedpsl/table-5-mlp": (12, 5733.2),
    "pfedmo/table-3.2": (70, 189873.83),
    "pfedmo/figure-3.4": (1, 95.71),
    "pfedmo/figure-3.5": (3, 571.68),
    "pfedmo/figure-3.7": (2, 454.0),
    "pfedpll/table-4.2": (88, 213993.75),
}
"""How many figures a study has of its paper, and their sum weighted by their place: any change or swap changes it."""


def test_the_papers_figures_are_those_that_were_copied() -> None:
    found = {}
    for study in studies().values():
        figures = [value for column in study.columns for row in column.paper.values() for value in row]
        if figures:
            found[study.name] = (len(figures), round(sum(n * value for n, value in enumerate(figures, 1)), 3))
    assert found == PRINTED


def test_the_papers_figures_agree_with_what_their_texts_say_of_them() -> None:
    lead = {"mnist": 1.10, "k-mnist": 7.38, "fashion-mnist": 1.17, "tiny-imagenet": 10.84, "svhn": 4.55}
    table = studies()["pfedpll/table-4.2"]
    for data, points in lead.items():
        paper = {row: values[0] for row, values in table.column(data).paper.items()}
        assert paper["pfedpll"] - paper["lw"] == pytest.approx(points)
    cifar = table.column("cifar10").paper
    assert cifar["pfedpll"][0] - cifar["cc"][0] == pytest.approx(11.19)


def test_compare_shows_the_papers_figures_only_beside_the_same_settings() -> None:
    assert paper_figures("lost")["pfedpll"] == 56.04
    assert paper_figures("lost", "exact") == {}
    assert paper_figures("bibtex")["fedalc"] == 59.67
    assert "fedaws" not in paper_figures("bibtex")  # 49.22 is for five neighbours, the preset has all pairs
    assert paper_figures("bibtex")["fedaws neighbours=5"] == 49.22
    assert paper_figures("mnist", "exact") == {}  # pFedMo's settings are not those of the preset
