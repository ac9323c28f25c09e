"""Runs over several ranks from the command line: torchrun, a rank that is killed, and devices that cannot be."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from imperfed.core.errors import UsageError
from imperfed.experiments.config import RunConfig
from imperfed.experiments.device import Hardware
from tests.support.dying_rank import LAST, VICTIM
from tests.support.terminal import done, records, surroundings

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
RUN = ("run", "tests.support.dying_rank:Dying", "--data", "digits", "--rounds", "6", "--model", "logistic")
SMALL = ("--workers", "1", "--device", "cpu", "-s", "kind=exact", "-s", "steps=3", "-s", "checkpoint_every=100")


def on_ranks(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [*TORCHRUN, "-m", "imperfed", *map(str, words)]
    where = surroundings(OMP_NUM_THREADS="1", **variables)
    return subprocess.run(command, capture_output=True, text=True, env=where, timeout=120, check=False)


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


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:0,0", "cpu:0", "cuda:a"])
def test_a_device_that_cannot_be_is_refused(device: str) -> None:
    with pytest.raises(UsageError, match=r"run\.device"):
        RunConfig(device=device)


def test_gpus_that_the_machine_does_not_have_are_named() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(UsageError, match=r"device = cuda:0,1: this machine has no GPU"):
        Hardware.of(RunConfig(device="cuda:0,1"))
