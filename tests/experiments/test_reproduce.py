"""A paper's table made anew."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from imperfed.experiments import parallel as processes
from imperfed.experiments import study
from imperfed.experiments.config import resolve
from imperfed.experiments.experiment import Watch
from imperfed.experiments.parallel import paying
from imperfed.experiments.study import read_study, studies
from tests.support.terminal import TINY, done, imperfed

FILE = """
study = "toy/table-1"
title = "Toy, table 1"

[settings]
labels.candidates = "flip"

[[rows]]
method = "cc"

[[rows]]
method = "proden"

[figures.digits]
cc = 50.0

[figures.lost]
cc = 40.0
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of two datasets in place of those that come along."""
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)
    path = tmp_path / "toy.toml"
    path.write_text(FILE)
    monkeypatch.setattr("imperfed.experiments.reproduce.studies", lambda: {"toy/table-1": path})
    return path


def test_ours_stands_beside_the_papers_figure(toy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = done("reproduce", "toy/table-1", "--only", "digits", "--seeds", "0,1", *TINY, "--out", out)
    (folder,) = out.iterdir()
    told = json.loads((folder / "results.json").read_text())
    assert list(told["datasets"]) == ["digits"]
    cc, proden = told["datasets"]["digits"]["lines"]
    mean = 100 * sum(cc["values"]) / 2
    row = next(line for line in (folder / "table.md").read_text().splitlines() if line.startswith("| cc |"))
    assert f"{mean:.2f}" in row
    assert row.endswith(f"| 50.00 | {mean - 50:+.2f} |")
    assert (proden["paper"], len(proden["values"])) == (None, 2)
    assert row in said.out.splitlines()


def test_an_unknown_table_or_dataset_is_refused(toy: Path, tmp_path: Path) -> None:
    for words, part in ((("toy/table-2",), "toy/table-1"), (("toy/table-1", "--only", "digit"), "digits")):
        said = imperfed("reproduce", *words, "--out", tmp_path / "out")
        assert (said.code, part in said.err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_on_a_cpu_a_run_has_the_machine_to_itself() -> None:
    assert paying(resolve(words={"method": "cc", "data": "digits", "device": "cpu"})) == 1


@pytest.mark.parametrize(("memory", "jobs"), [(141e9, 3), (8e9, 1)])
def test_on_a_large_gpu_seeds_run_side_by_side(memory: float, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = SimpleNamespace(total_memory=memory)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    assert paying(resolve(words={"method": "cc", "data": "digits", "device": "auto"})) == jobs


def test_that_data_are_prepared_is_said_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(processes, "load_data", lambda config: said.append("read"))
    monkeypatch.setattr(processes, "refuse_other_labels", lambda config, data: said.append("check"))
    monkeypatch.setattr(processes, "start", lambda *_: (None, {}))
    watch = Watch(prepare=lambda config: said.append("prepare"))
    processes.of_one_seed([resolve(words={"method": "cc", "data": "digits"})], tmp_path, lambda: watch)
    assert said == ["prepare", "read", "check", "prepare"]


def test_every_study_that_comes_along_can_be_read() -> None:
    assert "pfedpll/table-4.2" in studies()
    for name, path in studies().items():
        found = read_study(str(path))
        assert name.count("/") == 1
        for data in found.datasets:
            part = found.on(data)
            assert part.settings["data"] == data
            assert set(part.paper) <= set(part.methods), study
