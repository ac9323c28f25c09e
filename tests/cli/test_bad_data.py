"""Data that cannot be learned from: one message with file, row and the way out, exit code 3, nothing written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from tests.support.terminal import arrays, done, imperfed, write


def refused(data: object, *parts: str, settings: tuple[str, ...] = (), code: int = 3, **environment: str) -> None:
    out = Path(str(data)).parent / "out"
    words = [word for setting in ("partition=iid", *settings) for word in ("--set", setting)]
    said = imperfed("run", "cc", "--data", data, *words, "--out", out, **environment)
    assert said.code == code, said.err
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1, said.err
    for part in parts:
        assert part in said.err
    assert not out.exists()


def with_row(name: str, row: int, value: Any) -> dict[str, Any]:
    array = arrays()[name].copy()
    array[row] = value
    return {name: array}


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        (with_row("candidates", 7, False), ["row 7", "candidate set is empty", "1 such rows"]),
        (with_row("candidates", 7, [False, False, True]), ["row 7", "true class 1 is not among the candidates"]),
        (with_row("y", 5, 3), ["row 5", "label 3", "0 .. 2"]),
        (with_row("y", 5, -1), ["row 5", "label -1", "0 .. 2"]),
        (with_row("x", 9, [0, 1, np.nan, np.inf]), ["row 9, feature 2", "nan", "fill or drop"]),
        ({"x": np.array([[1.0, 2.0], [3.0]], dtype=object)}, ["'x'", "ragged"]),
        ({"x": None}, ["no array 'x'"]),
        ({"x": np.zeros((0, 4), np.float32)}, ["no examples"]),
        ({"x": arrays()["x"][:30]}, ["30 examples but 40 true classes"]),
        ({"candidates": arrays()["candidates"] * 2}, ["neither 0 nor 1", "row 0"]),
        ({"labels": np.zeros(40, int)}, ["unknown array 'labels'", "candidates"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_arrays_that_break_a_rule(changed: dict[str, Any], parts: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / "mine.npz", **changed)
    refused(path, str(path), *parts)


def test_sites_too_small_to_learn_and_be_measured(tmp_path: Path) -> None:
    site = np.array([0] * 39 + [1])
    refused(write(tmp_path / "mine.npz", site=site), "site-1", "one row", settings=("partition=column",))
    refused(write(tmp_path / "mine.npz"), "names no site", "column", settings=("partition=column",))
    refused(write(tmp_path / "mine.npz"), "41 sites but only 40 rows", settings=("sites=41",), code=2)


def test_no_true_class_to_be_measured_by(tmp_path: Path) -> None:
    refused(write(tmp_path / "mine.npz", y=None), "mine", "true class is known", "test = 0")


def test_candidate_sets_of_which_there_are_none(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.npz", candidates=None)
    refused(path, "no candidate sets come with the data", settings=("labels.kind=candidates", "candidates=given"))


def test_damaged_archives(tmp_path: Path) -> None:
    whole = write(tmp_path / "mine.npz").read_bytes()
    for name, damaged in {
        "short": whole[: len(whole) // 2],
        "flipped": whole[:200] + bytes(255 - b for b in whole[200:300]) + whole[300:],
        "empty": b"",
        "text": b"x,y\n1,2\n",
    }.items():
        path = tmp_path / f"{name}.npz"
        path.write_bytes(damaged)
        refused(path, str(path))


def test_damaged_matlab_files(tmp_path: Path) -> None:
    path, mine = tmp_path / "mine.mat", arrays()
    sets, truth = mine["candidates"].T.astype(float), np.eye(3)[mine["y"]].T
    scipy.io.savemat(path, {"data": mine["x"], "partial_target": sets, "target": truth})
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:60], b"MATLAB" + bytes(500)):
        path.write_bytes(damaged)
        refused(path, str(path))
    scipy.io.savemat(path, {"data": mine["x"], "partial_target": sets})
    refused(path, str(path), "no variable 'target'")
    sets[:, 4] = 0
    scipy.io.savemat(path, {"data": mine["x"], "partial_target": sets, "target": truth})
    refused(path, str(path), "row 4", "candidate set is empty")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    refused(tmp_path / "none.npz", str(tmp_path / "none.npz"), "no such file")
    said = imperfed("run", "cc", "--data", "lost", "--out", tmp_path / "out", IMPERFED_DATA=str(tmp_path / "data"))
    assert said.code == 3
    for part in ("pll/lost.mat", f" in {tmp_path / 'data'}", "partial_label_realworld_dataset", "IMPERFED_DATA"):
        assert part in said.err
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_that_cannot_be_read(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "summary.json").unlink()
    metrics = (run / "metrics.jsonl").read_bytes()
    checkpoint = run / "checkpoints" / "last.safetensors"
    whole = checkpoint.read_bytes()
    for damaged in (whole[:-9], b"", b"nonsense"):
        checkpoint.write_bytes(damaged)
        said = imperfed("resume", run)
        assert said.code == 3
        assert said.err.startswith(f"error: {checkpoint}: not a readable checkpoint")
    (run / "config.toml").write_text((run / "config.toml").read_text().replace("hidden = 64", "hidden = 32"))
    checkpoint.write_bytes(whole)
    said = imperfed("resume", run)
    assert said.code == 3
    assert "belongs to another configuration" in said.err
    assert (run / "metrics.jsonl").read_bytes() == metrics


def test_models_that_are_missing_damaged_or_anothers(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    models = run / "models"
    (models / "site-0.safetensors").write_bytes((models / "global.safetensors").read_bytes())
    said = imperfed("evaluate", run)
    assert said.code == 3
    assert "the model of site-0 does not fit this run's settings" in said.err
    (models / "site-0.safetensors").write_bytes(b"nonsense")
    said = imperfed("evaluate", run)
    assert said.code == 3
    assert "site-0.safetensors: not a readable model" in said.err
    shutil.rmtree(models)
    said = imperfed("evaluate", run)
    assert said.code == 3
    assert f"no such file; delete {run / 'summary.json'} and `imperfed resume {run}`" in said.err
    (run / "summary.json").unlink()
    assert "summary.json" not in imperfed("evaluate", run).err
    done("resume", run)
    done("evaluate", run)
