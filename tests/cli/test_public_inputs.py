"""Public inputs: taken from the test rows of the user's own data only where a method uses them; the log says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import imperfed
from tests.support.terminal import TINY, done, summary, write

HALF = (*TINY, "--set", "split.public=0.5")  # of the two test rows of a site


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "mine.npz")


def facts(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = summary(folder)["facts"]
    return found


def log(folder: Path) -> str:
    return (folder / "log.txt").read_text()


def test_only_a_method_that_uses_them_takes_test_rows(data: Path, tmp_path: Path) -> None:
    ran = {m: done("run", m, "--data", data, *HALF, "--out", tmp_path).folder for m in ("cc", "pfedpll")}
    cc, pfedpll = facts(ran["cc"]), facts(ran["pfedpll"])
    assert (cc["public_rows"], pfedpll["public_rows"] > 0) == (0, True)
    assert sum(cc["test_rows"]) == sum(pfedpll["test_rows"]) + pfedpll["public_rows"]
    assert "public inputs: none; cc uses none" in log(ran["cc"])
    taken = f"public inputs: {pfedpll['public_rows']} from the test rows of the sites; pfedpll uses them"
    assert taken in log(ran["pfedpll"])


def test_a_setting_of_the_method_decides(data: Path, tmp_path: Path) -> None:
    folder = done("run", "pfedpll", "--data", data, *HALF, "--set", "kl=false", "--out", tmp_path).folder
    assert facts(folder)["public_rows"] == 0


def test_methods_that_are_compared_are_tested_on_the_same_rows(data: Path, tmp_path: Path) -> None:
    done("compare", "cc,pfedpll", "--no-alone", "--data", data, *HALF, "--out", tmp_path / "out")
    cc, pfedpll = (facts(path.parent) for path in sorted((tmp_path / "out").rglob("summary.json")))
    assert cc["test_rows"] == pfedpll["test_rows"]
    assert cc["public_rows"] == pfedpll["public_rows"] > 0


def test_built_in_datasets_are_split_as_ever(tmp_path: Path) -> None:
    few: dict[str, Any] = {"rounds": 1, "steps": 1, "workers": 1, "labels.kind": "exact"}
    result = imperfed.run("fedavg", data="digits", out=tmp_path, **few)
    assert result.summary.facts.public_rows > 0
    assert "though fedavg uses none" in log(result.folder)
    assert json.loads((result.folder / "summary.json").read_text())["facts"]["public_rows"] > 0
