"""Runs over several ranks from the command line: torchrun, a rank that is killed, and devices that cannot be."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from imperfed.core.errors import UsageError
from imperfed.engine.backends.distributed.group import RankGroup
from imperfed.experiments import ranks
from imperfed.experiments.config import RunConfig
from imperfed.experiments.device import Hardware, on_own_cores
from tests.support.dying_rank import LAST, VICTIM
from tests.support.terminal import QUICK, done, on_ranks, products, records

RUN = ("run", "tests.support.dying_rank:Dying", "--data", "digits", "--rounds", "6", "--model", "logistic")
SMALL = ("--workers", "1", "--device", "cpu", "-s", "kind=exact", "-s", "steps=3", "-s", "checkpoint_every=100")


def test_torchrun_gives_what_one_process_gives_bit_for_bit_where_no_sums_travel(tmp_path: Path) -> None:
    words = ("run", "pfedpll", "--data", "digits", *QUICK, "--rounds", "3", "--device", "cpu")
    ran = on_ranks(*words, "--out", tmp_path / "ranks")
    assert ran.returncode == 0, ran.stderr
    (folder,) = (tmp_path / "ranks").iterdir()
    log = (folder / "log.txt").read_text()
    assert "2 ranks hold 2 + 2 sites" in log
    assert re.search(r"'w' of 4 sites is looked at one by one: 0\.\d+ MB to rank 0", log)
    assert products(folder) == products(done(*words, "--out", tmp_path / "one").folder)


def test_one_rank_is_a_run_without_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for ranks_in_all, expected in (("1", False), ("2", True)):
        for name, value in {"WORLD_SIZE": ranks_in_all, "LOCAL_WORLD_SIZE": ranks_in_all, "LOCAL_RANK": "0"}.items():
            monkeypatch.setenv(name, value)
        assert ranks.several() is expected
    assert ranks.backend_of(Hardware(torch.device("cpu"), "float32")) is on_own_cores


def test_ranks_that_were_started_for_gpus_are_those_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    original = ranks.start_ranks

    def begin(size: int) -> RankGroup:
        begun.append(size)
        return original(size)

    monkeypatch.setattr(ranks, "start_ranks", begin)
    cpu = torch.device("cpu")
    one, two, three = (Hardware(cpu, "float32", gpus=tuple(range(n))) for n in (1, 2, 3))
    try:
        for hardware in (two, two, three):
            ranks.backend_of(hardware)
            assert len(ranks.children()) == len(hardware.gpus) - 1
        assert begun == [2, 3]
        assert ranks.over_ranks(three)
        assert not ranks.over_ranks(one)
        assert ranks.backend_of(one) is on_own_cores
        assert not ranks.children()
    finally:
        ranks.stop_ranks()
    assert "WORLD_SIZE" not in os.environ


def test_a_rank_that_is_killed_ends_the_run_which_goes_on_in_one_process(tmp_path: Path, no_page: None) -> None:
    ran = on_ranks(*RUN, *SMALL, "--out", tmp_path / "ranks", **{VICTIM: "1"})
    (folder,) = (tmp_path / "ranks").iterdir()
    assert ran.returncode == 1
    assert "error: rank 1, which holds site-" in ran.stderr
    assert f"in one process or on any number of ranks: imperfed resume {folder}" in ran.stderr
    assert [record["round"] for record in records(folder)][-1] == LAST - 1
    assert not (folder / "summary.json").exists()

    resumed = done("resume", folder)
    whole = done(*RUN, *SMALL, "--out", tmp_path / "whole").folder
    assert re.search(r"resumed after round [1-3]\b", (folder / "log.txt").read_text())  # one was written after round 1
    for model in (whole / "models").glob("*.safetensors"):
        ours, theirs = load_file(folder / "models" / model.name), load_file(model)
        for name, t in theirs.items():
            torch.testing.assert_close(ours[name], t, rtol=1e-5, atol=1e-6)
    assert resumed.folder == folder


def test_a_rank_that_dies_ends_a_comparison_whose_other_runs_are_kept(tmp_path: Path, no_page: None) -> None:
    words = ("compare", "--no-alone", "tests.support.dying_rank:Dying", "--data", "digits", "--seeds", "0,1")
    small = ("--rounds", "6", "-s", "kind=exact", "-s", "steps=3", "-s", "checkpoint_every=2", "--device", "cpu")
    ran = on_ranks(*words, *small, "--model", "logistic", "--out", tmp_path / "ranks", **{VICTIM: "1"})
    (folder,) = (tmp_path / "ranks").iterdir()
    assert ran.returncode == 1
    assert "error: rank 1 has ended (" in ran.stderr
    assert f"continue the whole comparison with: imperfed resume {folder}" in ran.stderr
    done("resume", folder)
    done(*words, *small, "--model", "logistic", "--out", tmp_path / "whole")
    models = [
        {(run / "config.toml").read_text(): (run / "models" / "global.safetensors").read_bytes() for run in runs}
        for runs in (folder.glob("*-digits-*"), (tmp_path / "whole").glob("*/*-digits-*"))
    ]
    assert models[0] == models[1]
    assert len(models[0]) == 2


def test_a_refused_setting_ends_in_one_message(tmp_path: Path) -> None:
    words = ("run", "scaffold", "--data", "digits", *QUICK, "--device", "cpu", "-s", "site_memory=0")
    ran = on_ranks(*words, "--out", tmp_path, launcher="imperfed.torchrun")
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: what the sites remember lies on disk (rounds.site_memory)")
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:0,0", "cpu:0", "cuda:a"])
def test_a_device_that_cannot_be_is_refused(device: str) -> None:
    with pytest.raises(UsageError, match=r"run\.device"):
        RunConfig(device=device)


def test_gpus_that_the_machine_does_not_have_are_named() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(UsageError, match=r"device = cuda:0,1: this machine has no GPU"):
        Hardware.of(RunConfig(device="cuda:0,1"))
