"""Whole runs spread over several ranks against the same in one process: defences, privacy, failures, resumption."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from imperfed.experiments import ranks
from imperfed.experiments.config import Config
from imperfed.experiments.resolving import resolve
from imperfed.experiments.starting import resume, start
from imperfed.experiments.watch import Interrupted, Watch
from imperfed.results.folder import RunFolder
from tests.support.terminal import records, write

SMALL = {"kind": "exact", "partition": "iid", "rounds": 3, "steps": 3, "device": "cpu", "workers": 1}


@pytest.fixture(scope="module")
def two_ranks() -> Iterator[None]:
    """Two ranks, which live as long as they are needed."""
    ranks.start_ranks(2)
    yield
    ranks.stop_ranks()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write(tmp_path_factory.mktemp("data") / "mine.npz", candidates=None))


def config(data: str, method: str, **more: object) -> Config:
    return resolve(words={"method": method, "data": data, **SMALL, **more})


def alone(config: Config, out: Path) -> RunFolder:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "_joined", None)
        return start(config, out, Watch())[0]


def models(run: RunFolder) -> dict[str, torch.Tensor]:
    named = {path.stem: load_file(path) for path in run.path.glob("models/*.safetensors")}
    assert named
    return {f"{model} {name}": t for model, tree in named.items() for name, t in tree.items()}


def assert_close(ours: RunFolder, theirs: RunFolder, tolerance: float) -> None:
    """Compare all models of two runs, bit for bit where the tolerance is 0, and the losses of all rounds."""
    here, there = models(ours), models(theirs)
    assert here.keys() == there.keys()
    for name, t in here.items():
        torch.testing.assert_close(t, there[name], rtol=tolerance, atol=tolerance, msg=name)
    mine, other = losses(ours), losses(theirs)
    assert mine == (other if tolerance == 0 else pytest.approx(other, rel=10 * tolerance))


def losses(run: RunFolder) -> dict[str, float]:
    """Return the training losses by round and site."""
    lines = [record for record in records(run.path) if record["metric"] == "train/loss"]
    return {f"{line['round']} {line['site']}": line["value"] for line in lines}


def failures(run: RunFolder) -> list[str]:
    """Return what the log says of sites that failed, without the time of each line."""
    lines = (run.path / "log.txt").read_text().splitlines()
    return [line.partition("site-")[2] for line in lines if " failed: " in line]


@pytest.mark.parametrize(
    ("words", "tolerance", "said"),
    [
        ({"method": "fedavg", "defence": "median", "adversaries": 1}, 0.0, "'w' of 4 sites is looked at one by one"),
        ({"method": "fedavg", "privacy": "sum"}, 0.0, "of 4 sites is looked at one by one"),
        ({"method": "fedavg", "privacy": "site"}, 1e-6, ""),
        ({"method": "scaffold", "participation": 0.5}, 1e-6, ""),
        ({"method": "fedper", "participation": 0.5}, 1e-6, ""),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_a_run_over_ranks_is_that_of_one_process(
    words: dict[str, Any], tolerance: float, said: str, data: str, two_ranks: None, tmp_path: Path, no_page: None
) -> None:
    run = config(data, **words)
    ours = start(run, tmp_path / "ranks", Watch())[0]
    log = (ours.path / "log.txt").read_text()
    assert "2 ranks hold" in log
    assert said in log
    assert_close(ours, alone(run, tmp_path / "one"), tolerance)


def test_sites_that_fail_are_named_and_left_out_as_in_one_process(
    data: str, two_ranks: None, tmp_path: Path, no_page: None
) -> None:
    run = config(data, "tests.support.failing_site:Failing")
    ours, theirs = start(run, tmp_path / "ranks", Watch())[0], alone(run, tmp_path / "one")
    assert failures(ours) == failures(theirs)
    assert any("the disk is full" in line for line in failures(ours))
    assert any("not finite" in line for line in failures(ours))
    assert {"1 site-1", "1 site-2", "3 site-0", "3 site-3"} <= set(losses(ours))
    assert {"2 site-1", "3 site-1", "2 site-2", "3 site-2"}.isdisjoint(losses(ours))
    assert_close(ours, theirs, 1e-6)


def test_a_run_goes_on_over_another_number_of_ranks(data: str, tmp_path: Path, no_page: None) -> None:
    run, done = config(data, "scaffold", rounds=4, participation=0.75), 0

    def stop() -> bool:
        nonlocal done
        done += 1
        return done == 2

    ranks.stop_ranks()
    ranks.start_ranks(2)
    with pytest.raises(Interrupted):
        start(run, tmp_path / "ranks", Watch(stop=stop))
    ranks.stop_ranks()
    ranks.start_ranks(3)
    (path,) = (tmp_path / "ranks").iterdir()
    resume(RunFolder(path), Watch())
    ranks.stop_ranks()
    before, _, after = (path / "log.txt").read_text().partition("resumed after round 2")
    assert "2 ranks hold" in before
    assert "3 ranks hold" in after
    assert_close(RunFolder(path), alone(run, tmp_path / "one"), 1e-6)
