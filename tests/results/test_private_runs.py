"""A private run from settings to its files: what was spent, what that covers, and what ends the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

pytest.importorskip("dp_accounting")

from imperfed.cli.tables import run_table
from imperfed.core.errors import UsageError
from imperfed.core.labels import Exact
from imperfed.core.privacy_cost import spent
from imperfed.data.federate import FederatedData
from imperfed.data.scale import Scale
from imperfed.experiments import experiment, starting
from imperfed.experiments.auto.run import refuse_unsearchable
from imperfed.experiments.resolving import resolve
from imperfed.experiments.watch import Watch
from imperfed.results.folder import RunFolder
from imperfed.testing.toy import world
from tests.support.made_run import text

WORDS: dict[str, Any] = {
    "method": "fedavg",
    "rounds": 6,
    "workers": 1,
    "hidden": 8,
    "local.epochs": 1,
    "local.batch": 8,
    "privacy.clip": 0.05,
}


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is on the toy federation."""
    told, oracle = world(Exact)
    facts = {
        "labels": "exact",
        "rows": told.sizes(),
        "test_rows": [40] * 4,
        "common_test_rows": 0,
        "rows_left_out": 0,
        "public_rows": 0,
    }
    data = FederatedData(told, oracle, facts, Scale.none())
    monkeypatch.setattr(experiment, "load_data", lambda config: data)


def run(tmp_path: Path, **words: Any) -> tuple[RunFolder, str]:
    """A run, and what it says on the console."""
    folder, summary = starting.start(resolve(words=WORDS | words), tmp_path, Watch())
    console = Console(record=True, width=400)
    run_table(console, summary, folder.path)
    return folder, console.export_text()


def test_what_was_spent_is_in_every_file_and_ends_the_run(tmp_path: Path) -> None:
    most = spent(1.5, 1e-5, 4) * 1.001
    words = {"privacy": "site", "privacy.noise": 3, "privacy.epsilon_max": most, "split.validation": 0.2}
    folder, said = run(tmp_path, **words)
    found = json.loads((folder.path / "summary.json").read_text())["privacy"]
    not_covered = found.pop("not_covered")
    assert found == {
        "mechanism": "site",
        "epsilon": spent(1.5, 1e-5, 4),
        "delta": 1e-5,
        "releases": 4,
        "early": True,
        "simulated": True,
    }
    assert "scores on rows held out and the choice of the best round" in not_covered
    assert "means and standard deviations of the inputs" not in not_covered
    lines = [one for one in folder.records() if one["metric"] == "privacy/epsilon"]
    assert {(one["round"], one["site"]) for one in lines} == {(r, f"site{k}") for r in range(1, 5) for k in range(4)}
    assert {one["value"] for one in lines if one["round"] == 3} == {spent(1.5, 1e-5, 3)}
    assert not [one for one in folder.records() if one["metric"] == "train/loss"]
    log = (folder.path / "log.txt").read_text()
    for place in (said, log, text(folder)):
        assert f"rivacy=site: epsilon {spent(1.5, 1e-5, 4):.3g} at delta 1e-05" in place
        assert "another round would exceed privacy.epsilon_max" in place
    assert f"round 2: 4 of 4 sites answered, epsilon {spent(1.5, 1e-5, 2):.3g}" in log
    assert "Not covered by epsilon" in text(folder)
    assert "4 of 6 rounds" in text(folder)
    assert "no later round was better" not in text(folder)


def test_a_sum_without_noise_has_no_epsilon(tmp_path: Path) -> None:
    folder, said = run(tmp_path, privacy="sum", rounds=1)
    assert json.loads((folder.path / "summary.json").read_text())["privacy"]["epsilon"] is None
    for place in (said, text(folder)):
        assert "rivacy=sum: only sums of updates leave the sites, without noise" in place
    assert "no losses are sent" in (folder.path / "log.txt").read_text()


def test_a_run_without_privacy_says_nothing_of_it(tmp_path: Path) -> None:
    words = {name: value for name, value in WORDS.items() if not name.startswith("privacy")}
    folder, summary = starting.start(resolve(words=words | {"rounds": 1}), tmp_path, Watch())
    assert summary.privacy is None
    assert "Privacy" not in text(folder)


def test_a_search_is_refused() -> None:
    with pytest.raises(UsageError, match="every trial of auto sends updates"):
        refuse_unsearchable(resolve(words=WORDS | {"privacy": "site"}))
