"""The messy table: six hospitals with the traits of real tables, from their files to a report, with every warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from imperfed.census.inspect import Inspection, inspect
from imperfed.data.files.declaration import read_declaration
from imperfed.data.files.reading import SiteReading, read_sites
from tests.support.messy import write_messy
from tests.support.terminal import done, summary


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_messy(tmp_path_factory.mktemp("messy") / "hospitals")


@pytest.fixture(scope="module")
def told(messy: Path) -> Inspection:
    return inspect(messy)


@pytest.fixture(scope="module")
def sites(messy: Path, told: Inspection) -> dict[str, SiteReading]:
    assert told.declaration.file.exists()
    return {site.name: site for site in read_sites(read_declaration(messy)).check().sites}


def warned(told: Inspection, *parts: str) -> bool:
    return any(all(part in sentence for part in parts) for sentence in told.warnings)


def column(site: SiteReading, place: int) -> list[float]:
    return [float(value) for value in site.rows.x[:, place]]


def test_no_column_is_lost_for_blanks_at_one_site(told: Inspection) -> None:
    inputs = told.declaration.inputs
    assert inputs.numeric == ("age", "weight", "temp", "crp", "smoker")
    assert inputs.missing == ("-", "n/a")
    assert inputs.fill == {"age": "median", "temp": "median", "crp": "median"}


def test_decimal_commas_at_one_site(sites: dict[str, SiteReading]) -> None:
    weights = column(sites["aachen"], 1)
    assert all(30 < weight < 130 for weight in weights)
    assert any(weight % 1 for weight in weights)


def test_a_byte_order_mark_and_line_ends_of_windows(sites: dict[str, SiteReading]) -> None:
    assert sites["basel"].rows.ids()[:2] == ("basel-0", "basel-1")
    assert len(sites["basel"].rows) == 60


def test_words_for_blanks(told: Inspection, sites: dict[str, SiteReading]) -> None:
    assert sites["basel"].rows.x[:, 3].isnan().sum() == 5
    assert told.values[1].numbers["crp"].blanks == 5
    assert told.values[3].numbers["age"].blanks == 2


def test_another_order_of_columns(sites: dict[str, SiteReading]) -> None:
    assert all(20 <= age <= 90 for age in column(sites["cork"], 0))


def test_an_extra_column_is_left_out_and_said(told: Inspection) -> None:
    assert "left out: bed; sites aachen, basel, cork, essen, fulda have no such column" in told.guessed


def test_quoted_commas_stay_in_their_cell(told: Inspection) -> None:
    assert "left out: note; neither numbers nor a few words" in told.guessed
    assert told.declaration.attribute is not None
    assert told.declaration.attribute.column == "sex"


def test_codes_for_no_value(told: Inspection) -> None:
    assert warned(told, "column weight: 99999 in 3 rows of cork", 'add "99999" to inputs.missing')
    assert warned(told, "column crp: -999 in 3 rows of cork")


def test_a_number_that_cannot_be_is_named_by_its_place(told: Inspection) -> None:
    assert warned(told, "column age: 1e+29 (essen.csv, line 9)")


def test_another_unit(told: Inspection) -> None:
    assert warned(told, "column weight: the median at fulda", "1,000 times that of most sites", "g and kg")


def test_a_class_at_one_site_only(told: Inspection) -> None:
    assert warned(told, "only one site holds class sepsis (at essen)")


def test_the_same_ids_at_two_sites(told: Inspection) -> None:
    assert warned(told, "column patient: 10 values are at both aachen and fulda")


def test_nothing_else_is_warned_of(told: Inspection) -> None:
    assert len(told.warnings) == 6


def test_every_command_that_is_named_runs_to_a_report(messy: Path, told: Inspection, tmp_path: Path) -> None:
    quick = ("--rounds", 1, "--set", "steps=2", "--set", "epochs=0", "--workers", 1, "--out", tmp_path)
    search, run, compare, audit = (step.command for step in told.steps)
    assert search == f"imperfed run --data {messy}"
    done(*audit.split()[1:], "--out", tmp_path / "audit")
    folder = done(*run.split()[1:], *quick).folder
    assert (folder / "report.html").exists()
    assert [row["site"] for row in summary(folder)["sites"]] == ["aachen", "basel", "cork", "delft", "essen", "fulda"]
    done(*compare.split()[1:], *quick, "--no-alone")
    new = tmp_path / "new.csv"
    new.write_text("crp;age;temp;weight;smoker;sex;patient\nn/a;45;37,5;80,2;1;m;x1\n3,5;-;;70;0;f;x2\n")
    done("predict", folder, new, "--out", tmp_path / "predicted.csv")
    lines = (tmp_path / "predicted.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ['"id"', '"x1"', '"x2"']
    assert "nan" not in "".join(lines)
