"""A comparison that is interrupted goes on as a whole, and ends as if it had not been."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from imperfed.cli.typed_words import configs
from imperfed.core.errors import DataError
from imperfed.experiments.comparison import compare
from imperfed.experiments.comparison_plan import FILE
from imperfed.experiments.watch import Interrupted, Watch
from tests.support.one_family import try_one_family
from tests.support.terminal import done, imperfed, products, write

METHODS, SEEDS = ["cc", "local-only+proden"], [3, 5]
WORDS = {"rounds": 3, "steps": 3, "workers": 1, "labels.candidates": "flip", "partition": "iid"}


@pytest.fixture(autouse=True)
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no page, and try one family of models alone: either takes longer than these runs."""
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)
    monkeypatch.setattr("imperfed.experiments.comparison.write_comparison_page", lambda folder: None)
    try_one_family(monkeypatch)


def begin(out: Path, data: Path, rounds: int = 1000) -> Path:
    """A comparison that is interrupted after so many rounds of all its runs."""
    seen: list[int] = []
    watch = Watch(round=lambda report, seconds: seen.append(report.round), stop=lambda: len(seen) >= rounds)
    config = configs(WORDS | {"data": str(data)})
    return compare(METHODS, SEEDS, config, out, lambda: watch, alone=True)[0]


def figures(folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return results


def runs(folder: Path) -> list[Path]:
    """The folders of the runs, in the order in which they were made."""
    return sorted((path.parent for path in folder.glob("*/config.toml")), key=lambda path: path.stat().st_ctime_ns)


@pytest.mark.parametrize("rounds", [2, 4, 8])
def test_it_ends_as_if_it_had_not_been_interrupted(rounds: int, tmp_path: Path) -> None:
    data = write(tmp_path / "mine.npz")
    whole = begin(tmp_path / "whole", data)
    with pytest.raises(Interrupted, match="the whole comparison with: imperfed resume"):
        begin(tmp_path / "cut", data, rounds)
    (cut,) = (tmp_path / "cut").iterdir()
    before = {path: path.stat().st_mtime_ns for path in cut.glob("*/summary.json")}
    assert len(before) == (rounds - 1) // 3
    said = done("resume", cut)
    assert "2 seeds" in said.out
    assert figures(cut) == figures(whole)
    assert (cut / "table.md").read_text().startswith(figures(whole)["brought"]["sentence"])
    assert len(runs(cut)) == len(runs(whole)) == 4
    by_settings = {(path / "config.toml").read_text(): products(path) for path in runs(whole)}
    assert by_settings == {(path / "config.toml").read_text(): products(path) for path in runs(cut)}
    assert {path: path.stat().st_mtime_ns for path in before} == before  # what had ended was not trained again


def test_one_that_has_ended_is_only_shown_again(tmp_path: Path) -> None:
    whole = begin(tmp_path / "whole", write(tmp_path / "mine.npz"))
    made = {path: path.stat().st_mtime_ns for path in whole.glob("*/*") if path.is_file()}
    assert "cc" in done("resume", whole).out
    assert {path: path.stat().st_mtime_ns for path in whole.glob("*/*") if path.is_file()} == made


def test_nothing_is_left_of_one_that_was_refused(tmp_path: Path) -> None:
    config = WORDS | {"data": str(write(tmp_path / "mine.npz"))}
    with pytest.raises(DataError, match="missing labels need"):
        compare(["cc", "masked-bce"], [0], configs(config), tmp_path / "out", Watch)
    assert not any((tmp_path / "out").rglob("*"))


def test_a_damaged_plan_is_said(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"methods": ["cc"]')
    said = imperfed("resume", tmp_path)
    assert said.code == 3
    assert f"{tmp_path / FILE}: cut short or damaged" in said.err
    (tmp_path / FILE).write_text("{}")
    assert imperfed("resume", tmp_path).code == 3
    assert "leave it out" in imperfed("resume", tmp_path, "--track", "mlflow").err
