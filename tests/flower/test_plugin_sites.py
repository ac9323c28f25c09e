"""A method of another distribution, over real `serve` and `join` processes that all have it installed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from imperfed.flower.processes.child import free_port
from tests.flower.test_verbs import HERE, SITES, allowing, settings, started, write_federation
from tests.support.far_away import by_hand


def test_an_installed_method_runs_at_real_sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugged, data, port = by_hand(tmp_path / "plug-in"), write_federation(tmp_path / "data"), free_port()
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (HERE.parents[1], plugged))))
    where = ["--host", "127.0.0.1", "--port", port, "--sites", ",".join(SITES), "--out", tmp_path / "runs"]
    site = {n: ["--data", data / "sites" / f"{n}.csv", "--test", data / "test" / f"{n}.csv"] for n in SITES}
    join = {n: ["join", f"127.0.0.1:{port}", *site[n], "--state", tmp_path / n, *allowing(tmp_path)] for n in SITES}
    with (
        started(tmp_path / "serve.out", "serve", data / "federation.toml", "far-away", *settings(), *where) as serving,
        started(tmp_path / "north.out", *join["north"]) as north,
        started(tmp_path / "south.out", *join["south"]) as south,
    ):
        assert serving.wait(300) == 0, (tmp_path / "serve.out").read_text()
        assert (north.wait(300), south.wait(300)) == (0, 0), (tmp_path / "north.out").read_text()
    [run] = (tmp_path / "runs").iterdir()
    assert json.loads((run / "summary.json").read_text())["method"] == "far-away"
    plugins = [plugin["path"] for plugin in json.loads((run / "env.json").read_text())["plug-ins"]]
    assert "far_away:FarAway" in plugins
    assert (run / "models" / "global.safetensors").exists()
    assert "round 2/2: loss" in (tmp_path / "serve.out").read_text()
