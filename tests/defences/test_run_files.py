"""A defended run from settings to its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from pyarrow import parquet
from rich.console import Console

from imperfed.cli.tables import run_table
from imperfed.core.errors import UsageError
from imperfed.data.federate import FederatedData
from imperfed.data.scale import Scale
from imperfed.experiments import experiment, starting
from imperfed.experiments.resolving import resolve
from imperfed.experiments.watch import Watch
from tests.support.fair_federation import federation

WORDS = {
    "method": "fedavg",
    "rounds": 4,
    "workers": 1,
    "hidden": 16,
    "steps": 20,
    "local.lr": 0.05,
    "defence": "fairfedpapl",
    "defence.target": "green",
    "defence.unprivileged": "high",
}


@pytest.fixture(autouse=True)
def unfair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is on the small unfair federation."""
    told, oracle = federation((1, 4, 8))
    facts = {
        "labels": "exact",
        "rows": told.sizes(),
        "test_rows": [30] * 10,
        "common_test_rows": 0,
        "rows_left_out": 0,
        "public_rows": 0,
        "public_from": "nowhere",
        "adversaries": ["site1", "site4", "site8"],
    }
    data = FederatedData(told, oracle, facts, Scale(torch.empty(0), torch.empty(0)))
    monkeypatch.setattr(experiment, "load_data", lambda config: data)


def test_suspicions_are_written_told_and_reported(tmp_path: Path):
    folder, summary = starting.start(resolve(words=WORDS), tmp_path, Watch())
    table = parquet.read_table(folder.path / "suspicions.parquet").to_pydict()
    assert list(table) == ["round", "site", "by", "score", "confidence", "out"]
    assert set(table["by"]) == {"fairfedpapl"}
    assert len(table["site"]) == 4 * 10
    found = json.loads((folder.path / "summary.json").read_text())["suspicions"]
    assert [line["site"] for line in found["out"]] == ["site1", "site4", "site8"]
    assert found["false_alarms"] == found["missed"] == []
    assert "Suspicions" in (folder.path / "report.html").read_text()
    assert "looked: cosine reached" in (folder.path / "log.txt").read_text()
    console = Console(record=True, width=200)
    run_table(console, summary, folder.path)
    said = console.export_text()
    assert f"left out by the defence: site1 (since round {found['out'][0]['since']}), site4" in said
    assert "suspicions.parquet" in said


def test_a_rule_that_accuses_nobody_writes_no_suspicions(tmp_path: Path):
    words = {k: v for k, v in WORDS.items() if not k.startswith("defence.")} | {"defence": "median", "rounds": 1}
    folder, summary = starting.start(resolve(words=words), tmp_path, Watch())
    assert summary.suspicions is None
    assert not (folder.path / "suspicions.parquet").exists()


def test_errors_come_before_anything_is_written(tmp_path: Path):
    for change, message in (
        ({"defence.target": "gren"}, "Did you mean 'green'"),
        ({"defence.unprivileged": ""}, "set defence.unprivileged to one of low, medium, high"),
        ({"defence": "fairfedpap"}, "Did you mean 'fairfedpapl'"),
        ({"defence.kapa": 1}, "kappa"),
    ):
        with pytest.raises(UsageError, match=message):
            starting.start(resolve(words=WORDS | change), tmp_path, Watch())
    assert not list(tmp_path.iterdir())
