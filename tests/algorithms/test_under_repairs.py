"""Methods for noisy labels, with labels as given and after a repair: one tiny run of each."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from imperfed.experiments.experiment import Experiment
from imperfed.experiments.resolving import resolve

METHODS = ("fedlsr", "rofl", "fednoro", "cfl", "clipfl", "fedcorr", "rhfl", "fedned")
SMALL = {
    "split.sites": 4,
    "split.partition": "iid",
    "split.trusted": 0.3,
    "split.public": 0.3,
    "noise": "uniform",
    "model.hidden": 6,
    "local.steps": 2,
    "local.batch": 8,
    "rounds.rounds": 3,
    "rounds.workers": 1,
}
AT_ONCE = {"fednoro": {"method.warmup": 1}, "fedned": {"method.warmup": 1}, "clipfl": {"method.scoring": 1}}
AT_ONCE |= {"fedcorr": {"method.stage1": 1, "method.stage2": 1}, "cfl": {"method.warmup": 0, "method.eps1": 9.0}}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small table of three classes."""
    draw = np.random.default_rng(0)
    y = draw.integers(0, 3, 200)
    path = tmp_path_factory.mktemp("repaired") / "table.npz"
    np.savez(path, x=draw.normal(size=(200, 4)) + 2 * np.eye(3, 4)[y], y=y)
    return path


@pytest.mark.parametrize("repair", ["", "fb-nll"])
@pytest.mark.parametrize("method", METHODS)
def test_it_trains(table: Path, method: str, repair: str) -> None:
    words = SMALL | {"data": str(table), "method": method, "repair": repair} | AT_ONCE.get(method, {})
    words |= {"repair.rank": 1, "repair.groups": 2} if repair else {}
    with closing(Experiment(resolve(words=words))) as experiment:
        assert experiment.engine.run(lambda report: None, lambda: False, None)
    assert (experiment.repair_result is not None) == bool(repair)
    assert all(torch.isfinite(t).all() for t in experiment.engine.state.flat().values())
