"""What a run leaves at the coordinator and at each site: the same as in one process, each part in its place."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet
from rich.console import Console

from imperfed.cli.tables import run_table
from imperfed.experiments import experiment
from imperfed.experiments.run_data import held_by_sites
from imperfed.experiments.starting import start
from imperfed.experiments.watch import Watch
from imperfed.flower.site import site_results as outcome
from imperfed.repairs.posterior import cross_fit, noise_model
from imperfed.results.folder import RunFolder
from tests.support.rehearsal import Apart, settled

WAYS: dict[str, dict[str, Any]] = {
    "candidate sets": {"method": "pfedpll", "labels.candidates": "flip", "candidates.edge": "raw"},
    "missing labels": {"method": "fedpsl", "labels.kind": "annotated", "annotation.annotated": 0.7},
    "wrong labels": {
        "method": "cross-entropy",
        "labels.kind": "exact",
        "labels.noise": "uniform",
        "split.trusted": 0.15,
        "repair": "fb-nll",
        "repair.M": 2,
        "repair.rank": 1,
        "repair.features": "raw",
    },
}
WAYS["labels in doubt"] = WAYS["wrong labels"] | {"method": "posterior-ce", "repair": "posterior"}
for setting in ("repair.M", "repair.rank", "split.trusted"):
    del WAYS["labels in doubt"][setting]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(0)
    y = draw.integers(0, 3, 240)
    x, classes = draw.normal(size=(240, 4)) + 2 * np.eye(3, 4)[y], np.array(["a", "b", "c"])
    folder = tmp_path_factory.mktemp("products")
    np.savez(folder / "one.npz", x=x, y=y, classes=classes)
    np.savez(folder / "several.npz", x=x, y=np.eye(3, dtype=int)[y] | (draw.random((240, 3)) < 0.2), classes=classes)
    return folder


@pytest.mark.parametrize("way", WAYS)
def test_a_whole_run(way: str, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if way != "candidate sets":  # pages take long to draw
        for room in (experiment, outcome):
            monkeypatch.setattr(room, "write_report", lambda folder: folder.write("report.html", str(folder.path)))
    for steps in ("POOLED_STEPS", "POOLED_STEPS_IN_SEARCH"):
        monkeypatch.setattr(noise_model, steps, 2)
    monkeypatch.setattr(cross_fit, "STEPS", 2)
    table = tables / ("several.npz" if way == "missing labels" else "one.npz")
    three = {"split.sites": 3, "split.partition": "iid", "rounds.rounds": 2}
    config = settled(data=str(table), **three | WAYS[way])
    whole, known = start(config, tmp_path / "whole", Watch())
    apart = Apart(config, held_by_sites(config), tmp_path / "apart", scales=False)
    server = apart.coordinator()
    server.folder.write("config.toml", config.toml())
    summary = server.run(Watch())
    assert list(server.folder.records()) == list(whole.records())
    for part in ("method", "objective", "sent", "rounds", "metric", "personal", "common", "account", "classes"):
        assert getattr(summary, part) == getattr(known, part)
    assert "did not write its own report" not in (server.folder.path / "log.txt").read_text()
    assert (server.folder.path / "report.html").exists()
    assert not (server.folder.path / "labels").exists()
    assert {p.name for p in (server.folder.path / "models").iterdir()} <= {"global.safetensors", "scale.safetensors"}
    traffic = json.loads((server.folder.path / "traffic.json").read_text())
    assert all(traffic[site][w] > 0 for site in ("site-0", "site-1", "site-2") for w in ("down", "up"))
    for k, site in enumerate(("site-0", "site-1", "site-2")):
        own = RunFolder(tmp_path / "apart" / site / "run")
        assert_same_files(own, whole, site)
        mine = own.summary()
        assert mine is not None
        assert mine.sites[0].value == known.sites[k].value
        assert mine.sent == known.sent
        page = (own.path / "report.html").read_text()
        assert site in page
        assert "seconds since" not in page
        if way == "candidate sets":  # described, without a word about where they come from
            assert "The sets hold" in page
            assert mine.facts.mean_size is not None
        run_table(console := Console(file=io.StringIO(), record=True), mine, own.path)
        assert "\nWritten:\n" in console.export_text()


def assert_same_files(own: RunFolder, whole: RunFolder, site: str) -> None:
    """The site's model and labels are those that one process has for it."""
    models = [folder.load_model(site) for folder in (own, whole)]
    shared = {name: t.tolist() for name, t in models[1].items()}
    assert {name: t.tolist() for name, t in models[0].items() if name in shared} == shared
    name = f"labels/{site}.parquet"
    assert (own.path / name).exists() == (whole.path / name).exists()
    if (own.path / name).exists():
        assert parquet.read_table(own.path / name).equals(parquet.read_table(whole.path / name))
