"""`track`: what `metrics.jsonl` says, read back by the tools' own readers."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import imperfed
from imperfed.core.errors import UsageError
from imperfed.results.tracking import tracker_class
from tests.support.terminal import QUICK, done, records
from tests.support.terminal import imperfed as terminal

Curves = dict[tuple[str, str], list[tuple[int, float]]]
FEW = {"rounds": 3, "steps": 2, "workers": 1, "checkpoint_every": 2}
NEEDS_MLFLOW = "mlflow is not installed (pip install 'imperfed[mlflow]')"


def sites() -> dict[str, Any]:
    """Three clear classes at two sites, one of them with a name that is more than letters."""
    draw = np.random.default_rng(0)
    y = draw.integers(0, 3, 60)
    x = (3 * np.eye(3)[y] + draw.normal(size=(60, 3))).astype(np.float32)
    return {"north": (x[:25], y[:25]), "St. Jo (2)": (x[25:], y[25:])}


def written(folder: Path) -> Curves:
    """The rounds and values of `metrics.jsonl`, by site and metric."""
    curves: Curves = defaultdict(list)
    for record in records(folder):
        curves[record["site"], record["metric"]].append((record["round"], pytest.approx(record["value"])))
    assert {site for site, _ in curves} == {"*", "north", "St. Jo (2)"}
    return dict(curves)


def read_events(folder: Path) -> Curves:
    """The same, as TensorBoard reads it."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    curves: Curves = {}
    for file in sorted((folder / "tensorboard").rglob("*tfevents*")):
        site = str(file.parent.relative_to(folder / "tensorboard")).replace(".", "*", file.parent.name == "tensorboard")
        events = accumulator.EventAccumulator(str(file)).Reload()
        for tag in events.Tags()["scalars"]:
            curves[site, tag] = [(event.step, event.value) for event in events.Scalars(tag)]
    return curves


def mlflow_run(folder: Path) -> tuple[Any, Any]:
    """The only run of a run's folder, with what reads it."""
    mlflow = pytest.importorskip("mlflow", reason=NEEDS_MLFLOW)
    client = mlflow.MlflowClient((folder / "mlruns").as_uri())
    [run] = client.search_runs([client.get_experiment_by_name("imperfed").experiment_id])
    return client, run


def test_tensorboard_reads_every_metric_of_every_site(no_page: None, tmp_path: Path) -> None:
    folder = imperfed.run("fedavg", sites(), tmp_path, track="tensorboard", **FEW).folder
    assert read_events(folder) == written(folder)
    assert not list(folder.rglob(f"*{os.uname().nodename}*"))


@pytest.mark.parametrize("before", ["tensorboard", "none"])
def test_a_resumed_run_has_every_round_once(before: str, no_page: None, tmp_path: Path) -> None:
    folder = imperfed.run("fedavg", sites(), tmp_path, track=before, **FEW).folder
    (folder / "summary.json").unlink()  # its last checkpoint is of round 2
    imperfed.resume(folder, sites(), track="tensorboard" if before == "none" else "")
    curves = read_events(folder)
    assert [step for step, _ in curves["north", "train/loss"]] == [1, 2, 3]
    assert curves == written(folder)
    assert 'track = "tensorboard"' in (folder / "config.toml").read_text()


def test_the_command_line_tracks_all_runs_of_a_comparison(no_page: None, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    done("compare", "cc, proden", "--no-alone", *QUICK, "--track", "tensorboard", "--out", tmp_path)
    folders = [path.parent for path in tmp_path.glob("*/*/tensorboard")]
    assert {folder.name.partition("-")[0] for folder in folders} == {"cc", "proden"}
    assert all(read_events(folder)["*", "bytes/up"] for folder in folders)


def test_without_a_wish_nothing_is_written(no_page: None, tmp_path: Path) -> None:
    folder = imperfed.run("fedavg", sites(), tmp_path, **FEW).folder
    assert not {"tensorboard", "mlruns"} & {path.name for path in folder.iterdir()}


def test_mlflow_reads_metrics_settings_and_the_report(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason=NEEDS_MLFLOW)
    folder = imperfed.run("fedavg", sites(), tmp_path, track="mlflow", **FEW).folder
    client, run = mlflow_run(folder)
    assert (run.info.status, run.data.params["rounds.rounds"], run.data.params["run.method"]) == (
        *("FINISHED", "3", "fedavg"),
    )
    assert [artifact.path for artifact in client.list_artifacts(run.info.run_id)] == ["report.html"]
    names = {("*", m): m for _, m in written(folder)} | {("north", m): f"{m}/north" for _, m in written(folder)}
    names |= {("St. Jo (2)", m): f"{m}/St. Jo _2_" for _, m in written(folder)}
    assert run.data.metrics.keys() == {names[key] for key in written(folder)}
    for key, values in written(folder).items():
        history = client.get_metric_history(run.info.run_id, names[key])
        assert [(metric.step, metric.value) for metric in history] == values


def test_an_interrupted_run_is_no_finished_one_for_mlflow(no_page: None, tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason=NEEDS_MLFLOW)

    def fail(report: Any) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        imperfed.run("fedavg", sites(), tmp_path, track="mlflow", on_round=fail, **FEW)
    [folder] = tmp_path.iterdir()
    assert mlflow_run(folder)[1].info.status == "KILLED"
    imperfed.resume(folder, sites())
    client, run = mlflow_run(folder)
    assert run.info.status == "FINISHED"
    assert [m.step for m in client.get_metric_history(run.info.run_id, "bytes/up")] == [1, 2, 3]


@pytest.mark.parametrize("tool", ["tensorboard", "mlflow"])
def test_a_tool_that_is_not_installed_is_named_with_its_extra(
    tool: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("imperfed.results.tracking.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=rf"{tool} is not installed; pip install 'imperfed\[{tool}\]'"):
        tracker_class(tool)
    said = terminal("run", "cc", *QUICK, "--track", tool, "--out", tmp_path / "runs")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert not (tmp_path / "runs").exists()


def test_another_tool_is_refused(tmp_path: Path) -> None:
    said = terminal("run", "cc", "--track", "wandb", "--out", tmp_path)
    assert (said.code, "unknown value of run.track 'wandb'" in said.err, "tensorboard" in said.err) == (2, True, True)
