"""The run of pFedMo's figure 3.7 over real processes, and its figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import deployment
from imperfed.experiments.study import studies
from studies import imported

STUDY = studies()["pfedmo/figure-3.7"]


def test_what_runs_is_what_the_study_says() -> None:
    assert {row.name: row.method for row in STUDY.rows} == deployment.METHODS
    assert (deployment.SITES, deployment.TARGET) == (16, imported.TARGET) == (16, 0.85)


def test_minutes_and_rounds_are_those_at_which_the_target_was_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = [{"seconds": 30.0, "accuracy": 0.8}, {"seconds": 90.0, "accuracy": 0.85}]
    found = {"20": {"pFedMo": {"rounds": reached}, "FedAvg": {"rounds": reached[:1]}}}
    (tmp_path / "deployment.json").write_text(json.dumps(found))
    monkeypatch.setattr(imported, "RESULTS", tmp_path)
    cells = {cell.row: cell for cell in imported.deployment(STUDY)}
    assert cells["pFedMo"].figures == {"minutes to target": 1.5, "rounds to target": 2, "mean": 0.85}
    assert cells["FedAvg"].figures == {"minutes to target": None, "rounds to target": None, "mean": 0.8}
    assert {cell.column for cell in cells.values()} == {"tau 20"}
