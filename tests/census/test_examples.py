"""The five examples, made small from real data: what the census says of each, what is guessed without federation.toml,
and a run of the method that the census names."""

from __future__ import annotations

import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from imperfed.census.guess import guess
from imperfed.data.files.declaration import read_declaration
from imperfed.data.stored_files import data_folder
from tests.support.terminal import done, strict, summary

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = {
    "four_hospitals": "chestxray14/chestxray14_part1_64.npz",
    "phones": "wisdm/wisdm_transformed.npz",
    "crowd": "cifar10/cifar10n_labels.npz",
    "mislabelled_labs": "cifar10/cifar10n_labels.npz",
    "ten_offices": "compas/compas-scores-two-years.csv",
}
ROWS = {"four_hospitals": 40, "phones": 2, "crowd": 30, "mislabelled_labs": 30, "ten_offices": 30}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Examples by name, each made once."""
    return {}


def make(name: str, made: dict[str, Path], factory: pytest.TempPathFactory) -> Path:
    """An example's folder, or a skip where its data are not here."""
    if not (data_folder() / FILES[name]).exists():
        pytest.skip(f"{FILES[name]} is not in {data_folder()}")
    if name not in made:
        out = factory.mktemp(name) / name
        words = [str(EXAMPLES / name / "make.py"), "--out", str(out), "--rows", str(ROWS[name])]
        with patch.object(sys, "argv", words):
            runpy.run_path(words[0], run_name="__main__")
        made[name] = out
    return made[name]


@pytest.fixture
def example(request: pytest.FixtureRequest, made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the example that the test names."""
    return make(request.param, made, tmp_path_factory)


def census(folder: Path) -> Any:
    return strict(done("inspect", folder, "--json").out)


def commands(found: Any) -> list[str]:
    return [step["command"] for step in found["next"]]


def sums(found: Any, what: str) -> dict[str, int]:
    return {name: sum(site[what][name] for site in found["sites"]) for name in found["classes"]}


def of(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", names, indirect=True)


@of(*FILES)
def test_what_is_guessed_is_what_the_example_declares(example: Path) -> None:
    declared, guessed = read_declaration(example), guess(example).declaration
    for part in ("sites", "site_column", "id", "test", "trusted", "inputs", "attribute"):
        assert getattr(guessed, part) == getattr(declared, part), part
    assert set(guessed.labels.classes) <= set(declared.labels.classes)
    same = replace(guessed.labels, classes=declared.labels.classes)  # a small example need not hold all classes
    assert replace(same, columns=declared.labels.columns) == declared.labels


@of("four_hospitals")
def test_hospitals(example: Path) -> None:
    found = census(example)
    assert found["labels"] == "annotated"
    assert [site["rows"] for site in found["sites"]] == [40] * 4
    by_name = {site["name"]: site for site in found["sites"]}
    assert by_name["north"]["unknown"]["Nodule"] == 40
    assert by_name["west"]["unknown"]["Infiltration"] == 40
    for site in found["sites"]:
        for name in found["classes"]:
            assert site["positive"][name] + site["negative"][name] + site["unknown"][name] == 40
    positive = {"Atelectasis": 9, "Effusion": 18, "Infiltration": 9, "Nodule": 4, "Pneumothorax": 8, "Consolidation": 1}
    assert sums(found, "positive") == positive
    text = "".join((example / "sites" / f"{name}.csv").read_text() for name in by_name)
    assert sum(line.split(",")[1:].count("1") for line in text.splitlines()) == sum(positive.values())
    assert "a blank is read as not annotated, not as negative" in found["warnings"]
    assert "site north never annotates Nodule, Pneumothorax, Consolidation" in found["warnings"]
    assert commands(found)[:2] == [
        f"imperfed run --data {example}",
        f"imperfed run fedpsl --data {example} --model cnn --set lr=0.003",
    ]


@of("phones")
def test_phones(example: Path) -> None:
    found = census(example)
    assert found["labels"] == "positive"
    assert len(found["sites"]) == 127
    assert all(sum(n > 0 for n in site["positive"].values()) == 1 for site in found["sites"])
    assert all(set(site["negative"].values()) == {0} for site in found["sites"])
    assert sums(found, "positive") == {
        "Walking": 60,
        "Jogging": 52,
        "Upstairs": 52,
        "Downstairs": 52,
        "Sitting": 20,
        "Standing": 17,
    }
    assert commands(found) == [f"imperfed run fedalc --data {example} --set epochs=2"]


@of("crowd")
def test_crowd(example: Path) -> None:
    found = census(example)
    assert found["labels"] == "candidates"
    sizes = {site["name"]: site["set_sizes"] for site in found["sites"]}
    same = {"1": 12, "2": 16, "3": 2}
    assert sizes == {"animals": same, "mixed": same, "vehicles": {"1": 24, "2": 5, "3": 1}}
    assert found["candidate_pairs"][0] == {"classes": ["automobile", "truck"], "rows": 6}
    recipe = "--model cnn --set optimizer=adamw --set lr=0.003 --set epochs=2"
    assert commands(found) == [
        f"imperfed run --data {example}",
        f"imperfed run pfedpll --data {example} {recipe}",
        f"imperfed compare pfedpll,local-only+lcp --data {example} {recipe}",
    ]


@of("mislabelled_labs")
def test_labs(example: Path) -> None:
    found = census(example)
    assert found["labels"] == "exact"
    assert {site["name"]: sum(site["positive"].values()) for site in found["sites"]} == {
        "careful": 30,
        "careless": 30,
        "hasty": 30,
    }
    assert {"fb-nll", "posterior"} == {entry["name"] for entry in found["methods"] if entry["part"] == "repair"}
    assert commands(found)[-1] == f"imperfed audit {example}"
    assert found["next"][-1]["why"].startswith("look first")


@of("ten_offices")
def test_offices(example: Path) -> None:
    found = census(example)
    assert [site["rows"] for site in found["sites"]] == [30] * 10
    assert sum(site["ambiguous_rows"] for site in found["sites"]) == 90
    groups = {name: sum(site["groups"][name] for site in found["sites"]) for name in found["sites"][0]["groups"]}
    assert sum(groups.values()) == 300 + 90
    assert sums(found, "positive") == {"Low": 157, "Medium": 84, "High": 59}


@of(*FILES)
def test_every_command_that_is_named_runs(example: Path, tmp_path: Path) -> None:
    training = [command.split() for command in commands(census(example)) if " audit " not in command]
    command, *others = [words for words in training if words[2] != "--data"]  # a search takes too long here
    quick = ("--rounds", 1, "--set", "steps=2", "--set", "epochs=0", "--workers", 1, "--out", tmp_path)
    folder = done(*command[1:], *quick).folder
    found = summary(folder)
    assert [row["site"] for row in found["sites"]] == [site["name"] for site in census(example)["sites"]]
    assert found["rounds"] == 1
    for words in others:  # what sites fit alone takes longer than all else here
        faster = ("--no-alone",) if words[1] == "compare" else ()
        done(*words[1:], *quick, *faster)
