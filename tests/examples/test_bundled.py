"""Bundled examples: made on the spot, the same every time, and what `inspect` advises for each runs as printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import imperfed
from imperfed.census.inspect import inspect
from imperfed.core.errors import UsageError
from imperfed.core.labels import KINDS
from imperfed.data.files.declaration import read_declaration
from imperfed.data.files.reading import read_sites
from imperfed.examples import examples
from tests.support.one_family import try_one_family
from tests.support.terminal import Said, done
from tests.support.terminal import imperfed as command

QUICK = ("--rounds", 1, "--workers", 1, "--set", "epochs=0", "--set", "steps=2")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of every example."""
    folder = tmp_path_factory.mktemp("examples")
    return {name: imperfed.example(name, folder / name) for name in examples()}


@pytest.fixture(autouse=True)
def small_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what sites fit alone, try the fastest family only; draw no page."""
    try_one_family(monkeypatch)
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_there_is_one_for_every_kind_of_labels_that_files_can_hold() -> None:
    kinds = {example.labels for example in examples().values()}
    assert kinds == {name for name, kind in KINDS.items() if kind.from_cells or kind.from_columns} - {"probabilities"}


@pytest.mark.parametrize("name", examples())
def test_files_are_those_that_the_declaration_says(name: str, made: dict[str, Path]) -> None:
    reading = read_sites(read_declaration(made[name])).check()
    assert reading.declaration.labels.kind == examples()[name].labels
    tests = [rows for rows in (reading.test, *(site.test for site in reading.sites)) if rows is not None]
    assert tests
    assert all(rows.truth is not None for rows in tests)
    trained = {bytes(row.numpy().tobytes()) for site in reading.sites for row in site.rows.x}
    tested = [bytes(row.numpy().tobytes()) for rows in tests for row in rows.x]
    assert sum(row in trained for row in tested) <= 0.01 * len(tested)  # a few scans look the same


@pytest.mark.parametrize("name", ["hospitals", "photos"])
def test_the_same_files_every_time(name: str, made: dict[str, Path], tmp_path: Path) -> None:
    again = imperfed.example(name, tmp_path / name)
    first, second = files(made[name]), files(again)
    for written in (first, second):
        assert b"imperfed inspect " in written.pop("README.md")  # names its own folder
    assert {key: value for key, value in first.items() if "census" not in key} == second


def test_what_is_made_up_is_as_the_readme_says(made: dict[str, Path]) -> None:
    labs = read_sites(read_declaration(made["labs"]))
    wrong = {
        site.name: float((site.rows.labels.values != site.rows.truth).double().mean())
        for site in labs.sites
        if site.rows.labels is not None and site.rows.truth is not None
    }
    assert {name: round(share, 2) for name, share in wrong.items()} == {"careful": 0.02, "careless": 0.4, "hasty": 0.2}
    offices = inspect(made["post-offices"]).census
    assert sum(size * rows for size, rows in offices.sizes().items()) / offices.rows == pytest.approx(3.1, abs=0.1)
    hospitals = {site.name: site for site in inspect(made["hospitals"]).census.sites}
    assert int(hospitals["aachen"].known.unknown[2]) == hospitals["aachen"].rows


def test_a_folder_with_anything_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    imperfed.example("cellars", tmp_path / "mine")  # empty: fine
    before = files(tmp_path / "mine")
    said = command("example", "keypads", tmp_path / "mine")
    assert said.code == 2
    assert "not empty" in said.err
    assert files(tmp_path / "mine") == before
    with pytest.raises(UsageError, match="Did you mean 'cellars'"):
        imperfed.example("celars", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_they_are_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for words in (("example",), ("list", "examples")):
        out = done(*words).out
        assert all(name in out for name in examples())
    assert "wine data" in done("show", "cellars").out


def ran(line: str, out: Path) -> Said:
    """A command as it was printed, made small by what is appended."""
    verb, *words = shlex.split(line)[1:]
    small: dict[str, tuple[Any, ...]] = {"run": QUICK, "compare": QUICK, "audit": (), "inspect": (), "repair": ()}
    search = verb == "run" and words[0].startswith("--")
    place = () if verb in ("inspect", "repair") else ("--out", out / verb / str(len(words)))
    words = [word for word in words if word not in ("--budget", "1")] if search else words
    return done(verb, *words, *(("--budget", 0.002) if search else ()), *small[verb], *place)


def blank_rows(text: str) -> list[str]:
    """The rows of printed tables of which all cells but the first are blank."""
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    return [cells[0] for cells in rows if len(cells) > 1 and cells[0] and not any(cells[1:])]


@pytest.mark.parametrize("name", examples())
def test_what_is_advised_runs_as_printed(name: str, made: dict[str, Path], tmp_path: Path) -> None:
    inspection = inspect(made[name])
    lines = inspection.commands
    first = f"imperfed run fedalc --data {made[name]}" if name == "keypads" else f"imperfed run --data {made[name]}"
    assert lines[0] == first
    assert all(step.why for step in inspection.steps)
    for line in lines:
        said = ran(line, tmp_path)
        assert blank_rows(said.out) == []
        if line.startswith("imperfed compare"):
            losses = {trained_with(path) for path in (tmp_path / "compare").rglob("summary.json")}
            assert len(losses) == 1
            assert "alone" in said.out


def trained_with(path: Path) -> str:
    return imperfed.load(path.parent).summary.objective


@pytest.mark.parametrize("name", examples())
def test_what_a_readme_says_to_try_runs(name: str, made: dict[str, Path], tmp_path: Path) -> None:
    block = (made[name] / "README.md").read_text().split("```")[1].strip().splitlines()
    assert block[0] == f"imperfed inspect {made[name]}"
    known = {*inspect(made[name]).commands, block[0]}
    for line in block:
        if re.sub(r" --(budget|rounds) \d+", "", line) not in known:  # the others were run above
            ran(line, tmp_path)


def test_one_class_at_each_site_tells_no_model_from_another(made: dict[str, Path], tmp_path: Path) -> None:
    said = command("run", "--data", made["keypads"], "--budget", 0.002, "--out", tmp_path / "runs")
    assert said.code == 2
    assert "each site of keypads names one class" in said.err
    assert not (tmp_path / "runs").exists()
